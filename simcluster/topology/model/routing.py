"""Shortest paths through a graph, equal on every machine and in both directions; and nodes without one."""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Final, TypeAlias

PACKET_BYTES = 1500

# Lengths are whole attoseconds: float sums depend on their order, and a tie broken by the last bit would make the path
# back differ from the path there.
_PER_SECOND = 10**18

Edge: TypeAlias = tuple[str, str, float, float]
"""Both ends, latency_s, bandwidth_Bps."""

_NONE: Final[dict[int, int]] = {}
"""The neighbours of a node without links."""


class Routes:
    """Paths between *names* along *edges*, passing only through *gateways* (the ends need not be any).

    With *spread*, all equally good paths are used (ECMP): as in switches, a hash of both ends' names decides at every
    node where paths part. Otherwise all pairs use the first.
    """

    def __init__(
        self, names: Sequence[str], edges: Iterable[Edge], gateways: frozenset[str], *, spread: bool = False
    ) -> None:
        self._spread = spread
        self._names = list(names)
        self._index = {name: index for index, name in enumerate(names)}
        self._through = [name in gateways for name in names]
        self._neighbours: list[dict[int, int]] = [_NONE] * len(names)
        self._ends: dict[tuple[int, int], dict[int, int]] = {}  # neighbours of nodes with one link
        self._trees: dict[int, dict[int, int]] = {}
        self._distances_from: dict[int, dict[int, tuple[int, int]]] = {}
        lengths: dict[tuple[float, float], int] = {}
        for a, b, *numbers in edges:
            length = lengths.get(key := (numbers[0], numbers[1]))
            if length is None:
                length = lengths[key] = _length(*key)
            self._join(self._index[a], self._index[b], length)
            self._join(self._index[b], self._index[a], length)

    def _join(self, node: int, other: int, length: int) -> None:
        known = self._neighbours[node]
        if not known:
            self._neighbours[node] = self._ends.setdefault((other, length), {other: length})
        elif len(known) == 1:  # perhaps shared
            self._neighbours[node] = {**known, other: length}
        else:
            known[other] = length

    def path(self, a: str, b: str) -> list[str] | None:
        """Return the names from *a* to *b*, inclusive; None if there is no path."""
        start, end = sorted((self._index[a], self._index[b]))
        names = [self._names[index] for index in self._path(start, end) or ()]
        if names and names[0] != a:
            names.reverse()
        return names or None

    def _path(self, start: int, end: int) -> list[int] | None:
        if start == end:
            return [start]
        if end in self._neighbours[start] and 1 in (len(self._neighbours[start]), len(self._neighbours[end])):
            return [start, end]
        # A node with one link has no choice. Starting from its neighbour instead answers every query about a star or a
        # tree with one search per switch, however many nodes are attached.
        inner_start, inner_end = self._only_exit(start), self._only_exit(end)
        if any(gate != node and not self._through[gate] for gate, node in ((inner_start, start), (inner_end, end))):
            return None
        path = self._inner(inner_start, inner_end, (start, end))
        return path and [start] * (inner_start != start) + path + [end] * (inner_end != end)

    def _inner(self, start: int, end: int, users: tuple[int, int]) -> list[int] | None:
        """Return the first of the best paths or, with *spread*, the one that a hash of the names of *users* selects."""
        if start == end:
            return [start]  # as between the leaves of a star: without a search
        if self._spread and start not in self._distances_from:
            self._distances_from[start] = self._distances(start)
        distances, tree = (self._distances_from[start], {}) if self._spread else ({}, self._tree(start))
        if end not in (distances or tree):
            return None
        path = [end]
        while (node := path[-1]) != start:
            if self._spread:
                ways = sorted(self._before(start, node, distances))
                # A hash that is the same in every process.
                names = "\x00".join(self._names[part] for part in (*users, node))
                path.append(ways[int.from_bytes(hashlib.sha256(names.encode()).digest()[:8], "big") % len(ways)])
            else:
                path.append(tree[node])
        return path[::-1]

    def _only_exit(self, node: int) -> int:
        """Return the only neighbour of *node*, or *node* itself if it has several or none."""
        neighbours = self._neighbours[node]
        return next(iter(neighbours)) if len(neighbours) == 1 else node

    def _tree(self, start: int) -> dict[int, int]:
        """Return, for every reachable node, its predecessor on the best path from *start*.

        The best path is the shortest; then the one with the fewest hops; then the one through the first nodes.
        """
        if start not in self._trees:
            distances = self._distances(start)
            levels: dict[int, list[int]] = {}
            for node, (_, hops) in distances.items():
                levels.setdefault(hops, []).append(node)
            tree, place = {start: start}, {start: 0}
            for hops in range(1, len(levels)):
                # Paths with equally many hops compare node by node: first by their prefix, then by their last node.
                for node in levels[hops]:
                    tree[node] = min(self._before(start, node, distances), key=place.__getitem__)
                ordered = sorted(levels[hops], key=lambda node: (place[tree[node]], node))
                place.update((node, index) for index, node in enumerate(ordered))
            self._trees[start] = tree
        return self._trees[start]

    def _before(self, start: int, node: int, distances: dict[int, tuple[int, int]]) -> list[int]:
        """Return the predecessors of *node* on any best path."""
        length, hops = distances[node]
        return [
            previous
            for previous, step in self._neighbours[node].items()
            if (previous == start or self._through[previous]) and distances.get(previous) == (length - step, hops - 1)
        ]

    def _distances(self, start: int) -> dict[int, tuple[int, int]]:
        """Return (length, hops) of the best path from *start* to every reachable node."""
        distances: dict[int, tuple[int, int]] = {}
        heap = [(0, 0, start)]
        while heap:
            length, hops, node = heapq.heappop(heap)
            if node in distances:
                continue
            distances[node] = (length, hops)
            if node != start and not self._through[node]:
                continue
            for neighbour, step in self._neighbours[node].items():
                if neighbour not in distances:
                    heapq.heappush(heap, (length + step, hops + 1, neighbour))
        return distances


def _length(latency_s: float, bandwidth_Bps: float) -> int:
    packet_s = Fraction(latency_s) + Fraction(PACKET_BYTES) / Fraction(bandwidth_Bps)
    return round(packet_s * _PER_SECOND)


def cut_off(workers: Sequence[str], links: Iterable[tuple[str, str]], gateways: frozenset[str]) -> list[str]:
    """Return the *workers* that cannot reach all others through *gateways*; of two parts, the smaller is cut off.

    A route may end at any node but pass only through gateways. So two workers reach each other if a link joins them, or
    if both are attached to, or belong to, one connected component of the gateways. Linear except in rare cases.
    """
    parent: dict[str, str] = {}
    beside: dict[str, list[str]] = {}

    def root(node: str) -> str:
        """Return the node that stands for the component of *node*: union-find with path halving."""
        while (above := parent.get(node, node)) != node:
            parent[node] = node = parent.get(above, above)
        return node

    for a, b in links:
        beside.setdefault(a, []).append(b)
        beside.setdefault(b, []).append(a)
        if a in gateways and b in gateways:
            parent[root(a)] = root(b)
    hangs_on = {name: {root(node) for node in (name, *beside.get(name, ())) if node in gateways} for name in workers}
    sizes = Counter(part for worker in workers for part in sorted(hangs_on[worker]))
    # max returns the first of equals: the component with the lowest rank.
    main = max(sizes, key=sizes.__getitem__) if sizes else None
    return [
        worker
        for worker in workers
        if main not in hangs_on[worker]
        and not all(
            other == worker or other in beside.get(worker, ()) or hangs_on[worker] & hangs_on[other]
            for other in workers
        )
    ]
