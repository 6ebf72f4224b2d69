"""The latencies of one request on an idle cluster, by the closed forms of simcluster.lm.plan.times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from simcluster.lm.plan.times import (
    TOKEN_BYTES,
    NodePace,
    all_reduce,
    gathered_s,
    hop_s,
    pace,
    pipeline_s,
    tensor_s,
    told_s,
)
from simcluster.lm.processor import engine_topology
from simcluster.lm.serving.setup import Setup
from simcluster.lm.serving.web.served import PredictedLatency
from simcluster.topology import Topology


class LatencyPredictor:
    """The times of *setup* on *topology*. The chunks of a prompt follow each other through the stages.

    Under `replicas` an idle cluster gives a request to the first one, or to the first that prefills and the first that
    decodes.
    """

    def __init__(self, setup: Setup, topology: Topology) -> None:
        self._setup = setup
        self._topology = topology = engine_topology(topology)
        names = [topology.workers[rank] for rank in setup.layout.ranks]
        self._names = self._decoders = names
        if setup.layout.kind == "replicas":
            self._names, self._decoders = names[:1], names[setup.layout.prefill :][:1]
        self._reduce = all_reduce(topology, names) if setup.layout.kind == "tensor" else None

    def __call__(self, prompt: int, answer: int) -> PredictedLatency | None:
        """Return what a *prompt* of that number of tokens and its *answer* take; None with guesses, of which the number
        that will be right is unknown.
        """
        if self._setup.limits.guesses:
            return None
        most = self._setup.limits.chunk_tokens
        chunks = [(begin, min(most, prompt - begin)) for begin in range(0, prompt, most)]
        middle = prompt + answer // 2  # a decoded token is timed in the middle of the answer
        if self._reduce is not None:
            times_s = [self._tensor_s(tokens, begin, is_last=begin + tokens == prompt) for begin, tokens in chunks]
            return PredictedLatency(sum(times_s), 1 / self._tensor_s(1, middle))
        back_s = hop_s(self._topology, self._names[-1], self._names[0], TOKEN_BYTES)
        token_s = pipeline_s(self._stages_s(self._decoders, 1, middle, is_last=True), self._hops_s(1), back_s)
        return PredictedLatency(self._prefill_s(chunks) + back_s, 1 / token_s)

    def _prefill_s(self, chunks: Sequence[tuple[int, int]]) -> float:
        """Return when the last stage has ended the last of *chunks*, (place in the prompt, tokens)."""
        done_s = [0.0] * len(self._names)
        for begin, tokens in chunks:
            hops_s, came_s = self._hops_s(tokens), 0.0
            stages_s = self._stages_s(self._names, tokens, begin, is_last=(begin, tokens) == chunks[-1])
            for place, stage_s in enumerate(stages_s):
                done_s[place] = max(came_s, done_s[place]) + stage_s
                came_s = done_s[place] + hops_s[place]
        return done_s[-1]

    def _tensor_s(self, tokens: int, context: int, *, is_last: bool = True) -> float:
        """Return the time of a chunk, or of a decoded token, under tensor parallelism; only the last chunk chooses."""
        assert self._reduce is not None, "asked under tensor parallelism"
        names, shape, share = self._names, self._setup.shape, 1 / len(self._names)
        paces = [self._pace(name, tokens, context, share) for name in names]
        ends_s = told_s(self._topology, names, TOKEN_BYTES * tokens)
        if is_last:
            ends_s += gathered_s(self._topology, names, shape.logits_bytes(1, share))
        else:
            paces = [replace(one, head_s=0.0) for one in paces]
        return tensor_s(shape, paces, self._reduce, ends_s, tokens)

    def _stages_s(self, names: Sequence[str], tokens: int, context: int, *, is_last: bool) -> list[float]:
        """Return the time of each stage; the last one chooses a token after the last chunk alone."""
        layers, last = self._setup.layout.layers, len(names) - 1
        return [
            self._pace(name, tokens, context).stage_s(layers[place], is_last and place == last)
            for place, name in enumerate(names)
        ]

    def _pace(self, name: str, tokens: int, context: int, share: float = 1.0) -> NodePace:
        device = self._topology.nodes[name].device
        assert device is not None, "a worker has a device"
        return pace(device, self._setup.shape, 1, tokens, context, share)

    def _hops_s(self, tokens: int) -> list[float]:
        size = self._setup.shape.hidden_bytes(tokens)
        return [*(hop_s(self._topology, a, b, size) for a, b in pairwise(self._names)), 0.0]
