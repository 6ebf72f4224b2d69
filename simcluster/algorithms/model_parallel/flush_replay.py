"""The replay of a pipeline's flush. Its hops between stages share links."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from simcluster.algorithms.model_parallel.pipeline_plan import Task
from simcluster.topology import Topology
from simcluster.topology.model.busy_links import bytes_s

Pair = tuple[int, int]
StageInput = tuple[str, int, int]
"""The way, the stage and the micro-batch of a task that waits for a message."""


class StageHops:
    """Messages between ranks on the nodes *names* of *topology*. Those on one link at once share it equally; those of
    one pair of ranks take turns.
    """

    def __init__(self, topology: Topology, names: Sequence[str]) -> None:
        self._topology, self._names = topology, names
        self._paces = cache(self._pace)
        self.restart()

    def restart(self) -> None:
        """Begin at time 0, before the first message."""
        self._time_s = 0.0
        self._number = 0
        self._coming: list[tuple[float, int, Pair, int, StageInput]] = []  # (ready, number, pair, bytes, what): a heap
        self._queues: dict[Pair, deque[tuple[int, StageInput]]] = {}
        self._left: dict[Pair, float] = {}  # bytes of the first message of each queue

    def send(self, ready_s: float, pair: Pair, size: int, what: StageInput) -> None:
        """Send *size* bytes from the first rank of *pair* to the second one, from *ready_s* on."""
        overhead_s = self._topology.nodes[self._names[pair[0]]].send_overhead_s
        heapq.heappush(self._coming, (ready_s + overhead_s, self._number, pair, size, what))
        self._number += 1

    def next_arrival(self) -> tuple[StageInput, int, float] | None:
        """Return what arrives next, at which rank, and when; None if no message is left."""
        while self._left or self._coming:
            pairs = tuple(self._left)
            paces = self._paces(pairs, max((self._queues[pair][0][0] for pair in pairs), default=0))
            ends = [(self._left[pair] * pace, pair) for pair, pace in zip(pairs, paces, strict=True)]
            passed_s, pair = min(ends, default=(math.inf, (0, 0)))
            starts = bool(self._coming) and self._coming[0][0] <= self._time_s + passed_s
            passed_s = self._coming[0][0] - self._time_s if starts else passed_s
            for of, pace in zip(pairs, paces, strict=True):
                self._left[of] -= passed_s / pace
            self._time_s += passed_s
            if not starts:
                return self._landed(pair)
            _, _, pair, size, what = heapq.heappop(self._coming)
            self._queues.setdefault(pair, deque()).append((size, what))
            self._left.setdefault(pair, size)
        return None

    def _landed(self, pair: Pair) -> tuple[StageInput, int, float]:
        queue = self._queues[pair]
        size, what = queue.popleft()
        del self._left[pair]
        if queue:
            self._left[pair] = queue[0][0]
        a, b = (self._names[rank] for rank in pair)
        after_s = self._topology.route_latency_s(a, b, size) + self._topology.nodes[b].recv_overhead_s
        return what, pair[1], self._time_s + after_s

    def _pace(self, pairs: tuple[Pair, ...], size: int) -> list[float]:
        """Return the seconds per byte of each of *pairs*, if all send at once."""
        return bytes_s(self._topology, [(self._names[a], self._names[b]) for a, b in pairs], size)


def replay_flush(
    orders: Sequence[Sequence[Task]], chunks: int, hops: StageHops, ranks: Callable[[int], Sequence[int]],
    run: Callable[[int, str, Mapping[int, float]], Mapping[int, float]], size: Callable[[int], int],
) -> None:  # fmt: skip
    """Let each place of a pipeline do its tasks, *orders* [place]. Place i has stages i, p + i, ..., *chunks* in all.

    *run* (stage, way, when its input came by rank) returns when each rank has ended its task. Then each of *ranks*
    (place) sends *size* (the higher one of both stages) bytes to its counterpart.
    """
    p, left = len(orders), list(map(deque, orders))
    last = p * chunks - 1
    came: dict[StageInput, Mapping[int, float]] = {}

    def go_on(i: int) -> None:
        while left[i]:
            way, chunk, k = left[i][0]
            s = chunk * p + i
            source, to = (s - 1, s + 1) if way == "forward" else (s + 1, s - 1)
            inputs = came.get((way, s, k), {})
            if 0 <= source <= last and len(inputs) < len(ranks(i)):
                return
            left[i].popleft()
            ends = run(s, way, inputs)
            if not 0 <= to <= last:
                continue
            if to % p == i:
                came[way, to, k] = ends
            else:
                for rank, other in zip(ranks(i), ranks(to % p), strict=True):
                    hops.send(ends[rank], (rank, other), size(max(s, to)), (way, to, k))

    hops.restart()
    for i in range(p):
        go_on(i)
    while (landed := hops.next_arrival()) is not None:
        what, rank, at_s = landed
        came[what] = {**came.get(what, {}), rank: at_s}
        go_on(what[1] % p)
