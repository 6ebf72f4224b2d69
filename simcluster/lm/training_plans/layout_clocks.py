"""The clocks of the ranks of a layout, for the replay of a step: work, exchanges, sums and hops between stages."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cache
from typing import Final

from simcluster.algorithms.model_parallel.expert_layout import ExpertLayout
from simcluster.algorithms.model_parallel.parallel_layout import Direction, LayoutPlace
from simcluster.lm.training_plans.rank_group import RankGroup
from simcluster.lm.training_plans.ring import NUMBER_BYTES, all_reduced_s, ring
from simcluster.topology.model.busy_links import bytes_s
from simcluster.topology.model.duration import expected_s
from simcluster.transport import Cost

EXACT_DIGITS: Final = 13
"""Ranks are as far ahead of each other as before if the difference has no digit up to this decimal of a second."""


class LayoutClocks:
    """The time *now* of each rank of *group* in *layout*; how long each computed, and what all sent."""

    def __init__(self, group: RankGroup, layout: ExpertLayout) -> None:
        self._group, self._layout = group, layout
        n = len(group.names)
        self.now = [0.0] * n
        self.compute_s = [0.0] * n
        self.sent_bytes = 0
        self._on = cache(lambda cost, rank: expected_s(group.devices[rank], cost))
        self.groups = cache(self._groups)
        self._known: dict[Hashable, tuple[list[float], list[float], int]] = {}

    def restart(self) -> None:
        """Forget what was counted, but not the time."""
        self.compute_s, self.sent_bytes = [0.0] * len(self.now), 0

    def again(self, stage: int, what: Hashable, work: Callable[[], object]) -> None:
        """Do *work* on the ranks of *stage*, or let it take as long as when *what* was done by ranks that were as far
        ahead of each other.
        """
        ranks = self.ranks(stage)
        start = min(self.now[rank] for rank in ranks)
        key = stage, what, tuple(round(self.now[rank] - start, EXACT_DIGITS) for rank in ranks)
        if key not in self._known:
            before = list(self.compute_s), self.sent_bytes
            work()
            ends, worked = ([of[rank] for rank in ranks] for of in (self.now, self.compute_s))
            done = [after - before[0][rank] for rank, after in zip(ranks, worked, strict=True)]
            self._known[key] = [end - start for end in ends], done, self.sent_bytes - before[1]
            return
        ends, done, sent = self._known[key]
        for rank, end, seconds in zip(ranks, ends, done, strict=True):
            self.now[rank] = start + end
            self.compute_s[rank] += seconds
        self.sent_bytes += sent

    def ranks(self, stage: int) -> range:
        """Return the ranks of *stage*, which follow one another."""
        each = len(self.now) // self._layout.plan.p
        return range(stage * each, (stage + 1) * each)

    def _groups(self, stage: int, *directions: Direction) -> list[list[int]]:
        """Return the groups of ranks of *stage* that differ in *directions* alone."""
        found = [LayoutPlace(rank, self._layout.counts).along(*directions) for rank in self.ranks(stage)]
        return [group for rank, group in zip(self.ranks(stage), found, strict=True) if group[0] == rank]

    def work(self, stage: int, costs: Callable[[int], Sequence[Cost]]) -> None:
        """Let each rank of *stage* work by *costs* (rank)."""
        for rank in self.ranks(stage):
            seconds = sum(self._on(cost, rank) for cost in costs(rank))
            self.now[rank] += seconds
            self.compute_s[rank] += seconds

    def shift(self, groups: Sequence[Sequence[int]], k: int, size: Callable[[int, int], int]) -> None:
        """Let each rank send *size* (rank, to) bytes to the *k*-th one after it in its group, and get as much."""
        names, topology = self._group.names, self._group.topology
        pairs = [(rank, group[(i + k) % len(group)]) for group in groups for i, rank in enumerate(group)]
        sizes = [size(rank, to) for rank, to in pairs]
        named = [(names[rank], names[to]) for rank, to in pairs]
        ends_s = list(self.now)
        for (rank, to), (a, b), of, byte_s in zip(
            pairs, named, sizes, bytes_s(topology, named, max(sizes)), strict=True
        ):
            sent_s = self.now[rank] + topology.nodes[a].send_overhead_s + of * byte_s
            came_s = sent_s + topology.route_latency_s(a, b, of) + topology.nodes[b].recv_overhead_s
            ends_s[rank], ends_s[to] = max(ends_s[rank], sent_s), max(ends_s[to], came_s)
        self.now[:] = ends_s
        self.sent_bytes += sum(sizes)

    def all_reduce(self, groups: Sequence[Sequence[int]], numbers: Callable[[int], int]) -> None:
        """Let each group sum a vector of *numbers* (its first rank) elements on a ring."""
        for ranks in groups:
            n, number = len(ranks), numbers(ranks[0])
            if n == 1 or not number:
                continue
            names = [self._group.names[rank] for rank in ranks]
            hops = ring(self._group.topology, names, NUMBER_BYTES * -(-number // n))
            found = all_reduced_s(hops, number, [self.now[rank] for rank in ranks])
            for rank, end in zip(ranks, found, strict=True):
                self.now[rank] = end
            self.sent_bytes += 2 * (n - 1) * NUMBER_BYTES * number
