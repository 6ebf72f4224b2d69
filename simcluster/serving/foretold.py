"""What an idle pipeline should do for one request, by the closed forms of simcluster.inference.plan.times."""

from __future__ import annotations

from itertools import pairwise

from simcluster.inference.plan.times import TOKEN_BYTES, hop_s, pace, pipeline_s
from simcluster.serving.setup import Setup
from simcluster.serving.web.served import Predicted
from simcluster.topology import Topology


class Foretold:
    """The times of *setup* on *topology*. The chunks of a prompt follow each other through the stages."""

    def __init__(self, setup: Setup, topology: Topology) -> None:
        self._setup, self._topology = setup, topology
        self._names = [topology.workers[rank] for rank in setup.layout.ranks]

    def __call__(self, prompt: int, answer: int) -> Predicted | None:
        """Return what a *prompt* of that number of tokens and its *answer* take, None for another placement."""
        layout, most = self._setup.layout, self._setup.limits.chunk_tokens
        if layout.kind not in ("alone", "pipeline") or prompt < 1:
            return None
        done_s = [0.0] * len(self._names)  # when each stage has ended its last chunk
        for begin in range(0, prompt, most):
            tokens = min(most, prompt - begin)
            hops_s = self._hops_s(tokens)
            before_s = 0.0
            for place, stage_s in enumerate(self._stages_s(tokens, begin, is_last=begin + tokens == prompt)):
                before_s = done_s[place] = max(before_s, done_s[place]) + stage_s
                before_s += hops_s[place]
        back_s = hop_s(self._topology, self._names[-1], self._names[0], TOKEN_BYTES)
        middle = prompt + answer // 2  # a decoded token is timed in the middle of the answer
        token_s = pipeline_s(self._stages_s(1, middle, is_last=True), self._hops_s(1), back_s)
        return Predicted(done_s[-1] + back_s, 1 / token_s)

    def _stages_s(self, tokens: int, context: int, *, is_last: bool) -> list[float]:
        """Return the time of each stage; the last one chooses a token after the last chunk alone."""
        shape, layers, last = self._setup.shape, self._setup.layout.layers, len(self._names) - 1
        found = []
        for place, name in enumerate(self._names):
            device = self._topology.nodes[name].device
            assert device is not None, "a worker has a device"
            one = pace(device, shape, 1, tokens, context)
            found.append(one.stage_s(layers[place], is_last and place == last))
        return found

    def _hops_s(self, tokens: int) -> list[float]:
        size = self._setup.shape.hidden_bytes(tokens)
        return [*(hop_s(self._topology, a, b, size) for a, b in pairwise(self._names)), 0.0]
