"""One model on one topology: the pace and the room of every node, and the best cut of its layers over an order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from simcluster.lm.plan.shape import ModelShape
from simcluster.lm.plan.times import TOKEN_BYTES, Lengths, NodePace, cycle_s, hop_s, pace, pipeline_s
from simcluster.lm.processor import engine_topology
from simcluster.topology import Device, Topology


@dataclass(frozen=True)
class LayerCut:
    """The *layers* of each node of *order*, and the seconds in which each of *requests*, in *groups*, gets a token."""

    order: tuple[str, ...]
    layers: tuple[int, ...]
    requests: int
    groups: int
    token_s: float

    @property
    def tokens_per_s(self) -> float:
        return self.requests / self.token_s


class ClusterModelCosts:
    """*shape* on the workers of *topology*, for requests of *lengths*; every number is computed once."""

    def __init__(self, topology: Topology, shape: ModelShape, lengths: Lengths) -> None:
        topology = engine_topology(topology)
        self.topology, self.shape, self.lengths = topology, shape, lengths
        self.names = topology.workers
        self.pace = cache(self._pace)
        self.hop_s = cache(self._hop_s)
        self.room = cache(self._room)

    def device(self, name: str) -> Device:
        device = self.topology.nodes[name].device
        assert device is not None, "a worker has a device"
        return device

    def memory(self, name: str) -> tuple[int | None, int | None]:
        """Return the memory of *name*, and how much of it a process can use; None if it is not limited."""
        return self.device(name).memory_bytes, self.device(name).usable_bytes

    def _pace(self, name: str, requests: int, share: float = 1.0) -> NodePace:
        return pace(self.device(name), self.shape, requests, 1, self.lengths.context, share)

    def prefill_pace(self, name: str, share: float = 1.0) -> NodePace:
        return pace(self.device(name), self.shape, 1, self.lengths.prompt, 0, share)

    def _hop_s(self, a: str, b: str, size: float) -> float:
        return hop_s(self.topology, a, b, size)

    def held_bytes(
        self, layers: int, first: bool, last: bool, requests: int, share: float = 1.0
    ) -> tuple[float, float]:
        """Return the bytes of weights and of the caches of *requests* on a node with *layers*, or *share* of all."""
        weights = layers * self.shape.layer_bytes + self.shape.ends_bytes(first, last)
        if share < 1:
            weights = self.shape.shard_bytes(share)
        return weights, share * requests * self.shape.cache_bytes(layers, self.lengths.most)

    def _room(self, name: str, first: bool, last: bool, requests: int) -> int:
        """Return the most layers that fit the memory of *name*, with the caches of *requests*."""
        memory = self.device(name).usable_bytes
        if memory is None:
            return self.shape.layers
        each = sum(self.held_bytes(1, False, False, requests))
        return max(0, min(self.shape.layers, math.floor((memory - self.shape.ends_bytes(first, last)) / each)))

    def cut(self, order: tuple[str, ...], requests: int) -> LayerCut | None:
        """Return the cut of the layers over *order* that gives *requests* the most tokens; None if nothing fits.

        The requests move through the stages in groups: one, as many as stages, one or as many more, or each by itself.
        """
        p, last = len(order), len(order) - 1
        rooms = [self.room(name, i == 0, i == last, requests) for i, name in enumerate(order)]
        if min(rooms) < 1 or sum(rooms) < self.shape.layers or p > self.shape.layers:
            return None
        best: LayerCut | None = None
        for groups in sorted({1, *(min(g, requests) for g in (p, p + 1, 2 * p, requests) if p > 1)}):
            together = math.ceil(requests / groups)
            paces = [self.pace(name, together) for name in order]
            fixed = [one.stage_s(0, i == last) for i, one in enumerate(paces)]
            each = [one.layer_s for one in paces]
            total = self.shape.layers
            layers = fastest(total, rooms, each) if groups == 1 else evenly(total, rooms, fixed, each)
            stages_s = [fixed[i] + layers[i] * each[i] for i in range(p)]
            token_s = cycle_s(stages_s, self.hops_s(order, together), self.back_s(order, together), groups)
            if best is None or token_s < best.token_s:
                best = LayerCut(order, tuple(layers), requests, groups, token_s)
        return best

    def hops_s(self, order: Sequence[str], tokens: int) -> list[float]:
        """Return the seconds of each hop; of the last node none, but a pipeline of one has one of 0 s."""
        size = self.shape.hidden_bytes(tokens)
        return [self.hop_s(a, b, size) for a, b in pairwise(order)] or [0.0]

    def back_s(self, order: Sequence[str], requests: int) -> float:
        return self.hop_s(order[-1], order[0], TOKEN_BYTES * requests)

    def ttft_s(self, cut: LayerCut) -> float:
        """Return the seconds from a prompt's arrival at an idle shelf to its first token."""
        paces, last = [self.prefill_pace(name) for name in cut.order], len(cut.order) - 1
        stages_s = [one.stage_s(cut.layers[i], i == last) for i, one in enumerate(paces)]
        return pipeline_s(stages_s, self.hops_s(cut.order, self.lengths.prompt), self.back_s(cut.order, 1))


def fastest(layers: int, rooms: Sequence[int], each: Sequence[float]) -> list[int]:
    """Return the cut with the least sum: a layer for every stage, the rest where one takes least, as far as it fits."""
    counts, left = [1] * len(rooms), layers - len(rooms)
    for i in sorted(range(len(rooms)), key=each.__getitem__):
        more = min(left, rooms[i] - 1)
        counts[i], left = counts[i] + more, left - more
    return counts


def evenly(layers: int, rooms: Sequence[int], fixed: Sequence[float], each: Sequence[float]) -> list[int]:
    """Return the cut with the least slowest stage; stage i takes fixed[i] + n each[i] for n layers.

    No cut is faster than one in fractions of layers. So every stage starts with the whole layers that it can do in that
    time, and each further one goes where it ends first: an exchange argument shows that this is the optimum.
    """
    stages = range(len(rooms))
    least_s = (layers + sum(fixed[i] / each[i] for i in stages)) / sum(1 / each[i] for i in stages)
    counts = [max(1, min(rooms[i], math.floor((least_s - fixed[i]) / each[i]))) for i in stages]
    while (left := layers - sum(counts)) > 0:
        i = min((i for i in stages if counts[i] < rooms[i]), key=lambda i: fixed[i] + (counts[i] + 1) * each[i])
        counts[i] += 1
    for _ in range(-left):
        i = max((i for i in stages if counts[i] > 1), key=lambda i: fixed[i] + counts[i] * each[i])
        counts[i] -= 1
    return counts
