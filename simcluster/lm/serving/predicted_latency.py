"""Predict the latency of one request on an idle cluster, with the formulas of lm.plan.times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from simcluster.lm.plan.times import (
    TOKEN_BYTES,
    NodePace,
    all_reduce_s,
    gathered_s,
    hop_s,
    pace,
    pipeline_s,
    tensor_s,
    told_s,
)
from simcluster.lm.serving.placement import while_answering
from simcluster.lm.serving.setup import Setup
from simcluster.lm.serving.web.served_model import PredictedLatency
from simcluster.topology import Topology


class LatencyPredictor:
    """A predictor of the latency of a request from its lengths, for *setup* on *topology*.

    The chunks of a prompt follow each other through the stages. With replicas, the predictor times
    the first replica, or the first one that prefills and the first one that decodes, because the
    router of an idle cluster chooses them.
    """

    def __init__(self, setup: Setup, topology: Topology) -> None:
        self._setup = setup
        self._topology = topology = while_answering(topology, setup, 1)
        names = [topology.workers[rank] for rank in setup.layout.ranks]
        self._names = self._decoders = names
        if setup.layout.kind == "replicas":
            self._names = names[:1]
            self._decoders = names[setup.layout.prefill :][:1]

    def __call__(self, prompt: int, answer: int) -> PredictedLatency | None:
        """Return the latency of a request with *prompt* tokens and *answer* tokens.

        Return None if the setup has guesses, because the share of right guesses is unknown in
        advance.
        """
        if self._setup.limits.guesses:
            return None
        most = self._setup.limits.chunk_tokens
        chunks = [(begin, min(most, prompt - begin)) for begin in range(0, prompt, most)]
        middle = prompt + answer // 2  # time a decoded token in the middle of the answer
        if self._setup.layout.kind == "tensor":
            times_s = [self._tensor_s(tokens, begin, is_last=begin + tokens == prompt) for begin, tokens in chunks]
            return PredictedLatency(sum(times_s), 1 / self._tensor_s(1, middle))
        back_s = hop_s(self._topology, self._names[-1], self._names[0], TOKEN_BYTES)
        token_s = pipeline_s(self._stages_s(self._decoders, 1, middle, is_last=True), self._hops_s(1), back_s)
        return PredictedLatency(self._prefill_s(chunks) + back_s, 1 / token_s)

    def _prefill_s(self, chunks: Sequence[tuple[int, int]]) -> float:
        """Return the time until the last stage ends the last of *chunks*.

        A chunk is (index of its first token in the prompt, number of tokens).
        """
        done_s = [0.0] * len(self._names)
        for begin, tokens in chunks:
            hops_s, came_s = self._hops_s(tokens), 0.0
            stages_s = self._stages_s(self._names, tokens, begin, is_last=(begin, tokens) == chunks[-1])
            for place, stage_s in enumerate(stages_s):
                done_s[place] = max(came_s, done_s[place]) + stage_s
                came_s = done_s[place] + hops_s[place]
        return done_s[-1]

    def _tensor_s(self, tokens: int, context: int, *, is_last: bool = True) -> float:
        """Return the time of a pass of *tokens* after *context* tokens, with tensor parallelism.

        *is_last* says whether logits are computed and a token is chosen: this is so for the last
        chunk of a prompt and for each decoded token.
        """
        names = self._names
        shape = self._setup.shape
        share = 1 / len(self._names)
        paces = [self._pace(name, tokens, context, share) for name in names]
        ends_s = told_s(self._topology, names, TOKEN_BYTES * tokens)
        if is_last:
            ends_s += gathered_s(self._topology, names, shape.logits_bytes(1, share))
        else:
            paces = [replace(one, head_s=0.0) for one in paces]
        reduce_s = all_reduce_s(self._topology, names, shape.hidden_bytes(tokens))
        return tensor_s(shape, paces, reduce_s, ends_s)

    def _stages_s(self, names: Sequence[str], tokens: int, context: int, *, is_last: bool) -> list[float]:
        """Return the time of each stage for *tokens*. Logits are computed only if *is_last*."""
        layers, last = self._setup.layout.layers, len(names) - 1
        return [
            self._pace(name, tokens, context).stage_s(layers[place], is_last and place == last)
            for place, name in enumerate(names)
        ]

    def _pace(self, name: str, tokens: int, context: int, share: float = 1.0) -> NodePace:
        return pace(self._topology.device(name), self._setup.shape, 1, tokens, context, share)

    def _hops_s(self, tokens: int) -> list[float]:
        size = self._setup.shape.hidden_bytes(tokens)
        return [*(hop_s(self._topology, a, b, size) for a, b in pairwise(self._names)), 0.0]
