"""Rings of nodes: the seconds of an all-reduce from whenever each rank joins it, and of many sums at a time."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from simcluster.collectives.flat import lengths_of
from simcluster.lm.plan.times import bytes_s
from simcluster.topology import Topology

NUMBER_BYTES = 4
"""The bytes of a number: weights, gradients and activations are 32-bit floats."""


MOST = 64
"""With more ranks, every hop counts as the slowest one."""


@dataclass(frozen=True)
class RingHop:
    """From one rank to the next: *before_s* of the sender's overhead, *byte_s* for each byte, then *after_s* of latency
    and of the receiver's overhead.
    """

    before_s: float
    byte_s: float
    after_s: float

    def sent_s(self, size: float) -> float:
        return self.before_s + size * self.byte_s


def ring(topology: Topology, names: Sequence[str]) -> list[RingHop]:
    """Return the hops of a ring over *names*, all in use at once; none for a single node."""
    if len(names) < 2:
        return []
    pairs = list(zip(names, [*names[1:], names[0]], strict=True))
    return [
        RingHop(
            topology.nodes[a].send_overhead_s,
            byte_s,
            topology.route_latency_s(a, b) + topology.nodes[b].recv_overhead_s,
        )
        for (a, b), byte_s in zip(pairs, bytes_s(topology, pairs), strict=True)
    ]


def all_reduced_s(hops: Sequence[RingHop], numbers: int, starts_s: Sequence[float]) -> list[float]:
    """Return when each rank has the sum of vectors of *numbers* that it joins at *starts_s*.

    In round k rank r sends chunk r - k and waits for the one before it: 2 (n - 1) rounds (Patarasuk and Yuan 2009).
    """
    n, now = len(starts_s), list(starts_s)
    sizes = [NUMBER_BYTES * length for length in lengths_of(numbers, n)]
    if n > MOST:
        return [max(starts_s) + 2 * (n - 1) * max(hop.sent_s(sizes[0]) + hop.after_s for hop in hops)] * n
    for k in range(2 * (n - 1)):
        sent = [now[r] + hop.sent_s(sizes[(r - k) % n]) for r, hop in enumerate(hops)]
        now = [max(sent[r], sent[r - 1] + hops[r - 1].after_s) for r in range(n)]
    return now


def period_s(hops: Sequence[RingHop], numbers: int, works_s: Sequence[float], repeats: int = 4) -> float:
    """Return the seconds of a step in which each rank works for *works_s* and joins an all-reduce of *numbers*.

    Ranks leave the ring at different times, so it is the difference between the last two of *repeats* steps.
    """
    now, before = [0.0] * len(works_s), 0.0
    for _ in range(repeats):
        before = max(now)
        now = all_reduced_s(hops, numbers, [start + work for start, work in zip(now, works_s, strict=True)])
    return max(now) - before


class RingRounds:
    """Several reduce-scatters or all-gathers on one ring at a time, in which all ranks do the same at the same moment.

    Each is n - 1 rounds of one message. Messages leave in the order in which they are ready, one after another.
    """

    def __init__(self, hops: Sequence[RingHop]) -> None:
        self._rounds = len(hops) - 1 if hops else 0
        self._hop = max(hops, key=lambda hop: (hop.byte_s, hop.after_s), default=RingHop(0.0, 0.0, 0.0))
        self._ready: list[tuple[float, int, int]] = []  # when, number of the exchange, rounds left
        self._chunks: list[float] = []
        self._ends: dict[int, float] = {}
        self._free_s = 0.0

    def begin(self, now_s: float, numbers: int) -> int:
        """Begin an exchange of a vector of *numbers* in all; return its number."""
        number = len(self._chunks)
        self._chunks.append(NUMBER_BYTES * -(-numbers // (self._rounds + 1)))
        if self._rounds:
            heapq.heappush(self._ready, (now_s, number, self._rounds))
        else:
            self._ends[number] = now_s
        return number

    def end_s(self, number: int) -> float:
        """Return when exchange *number* is complete."""
        while number not in self._ends:
            ready_s, which, left = heapq.heappop(self._ready)
            self._free_s = max(self._free_s, ready_s) + self._hop.sent_s(self._chunks[which])
            arrived_s = self._free_s + self._hop.after_s
            if left > 1:
                heapq.heappush(self._ready, (arrived_s, which, left - 1))
            else:
                self._ends[which] = arrived_s
        return self._ends[number]
