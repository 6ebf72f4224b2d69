"""Times of exchanges on a ring: one that ranks join at different times, or several at once."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simcluster.collectives.flat import lengths_of
from simcluster.topology import Topology
from simcluster.topology.model.busy_links import bytes_s

NUMBER_BYTES = 4
"""Size in bytes of a number: weights, gradients and activations are 32-bit floats."""


REPEATS = 4
"""Number of steps until times are steady, if ranks leave a ring at different moments."""

MOST = 64
"""With more ranks, every hop counts as the slowest: the exact form is quadratic in the ranks."""


@dataclass(frozen=True)
class RingHop:
    """The hop from a rank to the next one on a ring.

    A message takes *before_s* (the sender's overhead), *byte_s* per byte, then *after_s* (the
    latency and the receiver's overhead).
    """

    before_s: float
    byte_s: float
    after_s: float

    def sent_s(self, size: float) -> float:
        """Return the seconds until a message of *size* bytes has left the sender."""
        return self.before_s + size * self.byte_s


def ring(topology: Topology, names: Sequence[str], size: float) -> list[RingHop]:
    """Return the hops of a ring over *names* if all send *size* bytes at once; [] for a single node."""
    if len(names) < 2:
        return []
    pairs = list(zip(names, [*names[1:], names[0]], strict=True))
    return [
        RingHop(
            topology.nodes[a].send_overhead_s,
            byte_s,
            topology.route_latency_s(a, b, size) + topology.nodes[b].recv_overhead_s,
        )
        for (a, b), byte_s in zip(pairs, bytes_s(topology, pairs, size), strict=True)
    ]


def all_reduced_s(hops: Sequence[RingHop], numbers: int, starts_s: Sequence[float]) -> list[float]:
    """Return the time at which each rank has the sum of all vectors of *numbers* elements.

    Ranks join at *starts_s*. In each of the 2 (n - 1) rounds, rank r sends a chunk and waits for
    the chunk of the previous rank. In round k, it sends chunk r - k (Patarasuk and Yuan 2009).
    """
    n = len(starts_s)
    now = list(starts_s)
    sizes = [NUMBER_BYTES * length for length in lengths_of(numbers, n)]
    if n > MOST:
        return [max(starts_s) + 2 * (n - 1) * max(hop.sent_s(sizes[0]) + hop.after_s for hop in hops)] * n
    for k in range(2 * (n - 1)):
        sent = [now[r] + hop.sent_s(sizes[(r - k) % n]) for r, hop in enumerate(hops)]
        now = [max(sent[r], sent[r - 1] + hops[r - 1].after_s) for r in range(n)]
    return now


def period_s(hops: Sequence[RingHop], numbers: int, works_s: Sequence[float]) -> float:
    """Return the seconds of a step: ranks work for *works_s*, then all-reduce *numbers*.

    Ranks leave the ring at different times, so the result is the difference between the ends of the
    last two of REPEATS steps.
    """
    now = [0.0] * len(works_s)
    before = 0.0
    for _ in range(REPEATS):
        before = max(now)
        now = all_reduced_s(hops, numbers, [start + work for start, work in zip(now, works_s, strict=True)])
    return max(now) - before


class RingRounds:
    """Several reduce-scatters or all-gathers at once on one ring, with all ranks in step.

    An exchange has n - 1 rounds with one message per rank. Messages leave one after another, in the
    order in which they become ready. *hops* returns the hops of a ring over *n* ranks with chunks
    of a vector.
    """

    def __init__(self, hops: Callable[[int], Sequence[RingHop]], n: int) -> None:
        self._rounds = n - 1
        self._hops = hops
        self._slowest: list[RingHop] = []
        self._ready: list[tuple[float, int, int]] = []  # (time, exchange, rounds left)
        self._chunks: list[float] = []
        self._ends: dict[int, float] = {}
        self._free_s = 0.0

    def begin(self, now_s: float, numbers: int) -> int:
        """Begin an exchange of a vector with *numbers* elements; return the exchange's number."""
        number = len(self._chunks)
        self._chunks.append(NUMBER_BYTES * -(-numbers // (self._rounds + 1)))
        none = RingHop(0.0, 0.0, 0.0)
        self._slowest.append(max(self._hops(numbers), key=lambda hop: (hop.byte_s, hop.after_s), default=none))
        if self._rounds:
            heapq.heappush(self._ready, (now_s, number, self._rounds))
        else:
            self._ends[number] = now_s
        return number

    def end_s(self, number: int) -> float:
        """Return the time at which the exchange *number* is complete."""
        while number not in self._ends:
            ready_s, which, left = heapq.heappop(self._ready)
            self._free_s = max(self._free_s, ready_s) + self._slowest[which].sent_s(self._chunks[which])
            arrived_s = self._free_s + self._slowest[which].after_s
            if left > 1:
                heapq.heappush(self._ready, (arrived_s, which, left - 1))
            else:
                self._ends[which] = arrived_s
        return self._ends[number]
