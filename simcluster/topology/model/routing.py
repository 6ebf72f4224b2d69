"""Shortest ways through a graph, the same on every machine and the same both ways. Pure and lazy."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

PACKET_BYTES = 1500

# Lengths are whole attoseconds. Sums of floats depend on their order, and a tie that is none in the last bit
# would make the way back another one than the way there.
_PER_SECOND = 10**18

Edge: TypeAlias = tuple[str, str, float, float]
"""Both ends, latency_s, bandwidth_Bps."""


class Routes:
    """Ways between *names* along *edges*, through *gateways* only (the ends need not be any).

    With *spread*, equally good ways are all used (ECMP): which one two ends use, a hash of their names decides, anew at
    every node where ways part, as switches do. Else all use the first.
    """

    def __init__(
        self, names: Sequence[str], edges: Sequence[Edge], gateways: frozenset[str], *, spread: bool = False
    ) -> None:
        self._spread = spread
        self._names = list(names)
        self._index = {name: index for index, name in enumerate(names)}
        self._through = [name in gateways for name in names]
        self._neighbours: list[dict[int, int]] = [{} for _ in names]
        self._trees: dict[int, dict[int, int]] = {}
        self._distances_from: dict[int, dict[int, tuple[int, int]]] = {}
        for a, b, latency_s, bandwidth_Bps in edges:
            packet_s = Fraction(latency_s) + Fraction(PACKET_BYTES) / Fraction(bandwidth_Bps)
            length = round(packet_s * _PER_SECOND)
            self._neighbours[self._index[a]][self._index[b]] = length
            self._neighbours[self._index[b]][self._index[a]] = length

    def path(self, a: str, b: str) -> list[str] | None:
        """Names from *a* to *b*, both included; None if there is no way."""
        start, end = sorted((self._index[a], self._index[b]))
        path = self._path(start, end)
        if path is None:
            return None
        names = [self._names[index] for index in path]
        return names if names[0] == a else names[::-1]

    def reached_from(self, name: str) -> set[str]:
        """Every name that *name* has a way to, itself included."""
        return {self._names[index] for index in self._tree(self._index[name])}

    def _path(self, start: int, end: int) -> list[int] | None:
        if start == end:
            return [start]
        if end in self._neighbours[start] and 1 in (len(self._neighbours[start]), len(self._neighbours[end])):
            return [start, end]
        # A node with one link leaves no choice. Searching from its neighbour instead answers every question
        # about a star or a tree with one search for each switch, however many nodes hang on it.
        inner_start, inner_end = self._only_exit(start), self._only_exit(end)
        if any(gate != node and not self._through[gate] for gate, node in ((inner_start, start), (inner_end, end))):
            return None
        inner = (inner_start, inner_end)
        path = self._spread_out(*inner, start, end) if self._spread else self._best(*inner)
        if path is None:
            return None
        head = [start] if inner_start != start else []
        tail = [end] if inner_end != end else []
        return head + path + tail

    def _best(self, start: int, end: int) -> list[int] | None:
        """The first of the best ways."""
        tree = self._tree(start)
        if end not in tree:
            return None
        path = [end]
        while path[-1] != start:
            path.append(tree[path[-1]])
        return path[::-1]

    def _spread_out(self, start: int, end: int, of: int, to: int) -> list[int] | None:
        """One of the best ways, as the names of the nodes *of* and *to*, which use it, decide."""
        if start not in self._distances_from:
            self._distances_from[start] = self._distances(start)
        distances = self._distances_from[start]
        if end not in distances:
            return None
        path = [end]
        while path[-1] != start:
            ways = sorted(self._before(start, path[-1], distances))
            path.append(ways[_hash(self._names[of], self._names[to], self._names[path[-1]]) % len(ways)])
        return path[::-1]

    def _only_exit(self, node: int) -> int:
        """The only neighbour of *node*, or *node* itself if it has several or none."""
        neighbours = self._neighbours[node]
        return next(iter(neighbours)) if len(neighbours) == 1 else node

    def _tree(self, start: int) -> dict[int, int]:
        """Of every node that can be reached, the one before it on the best way from *start*.

        The best way is the shortest; of those, that of fewest hops; of those, that whose nodes come first.
        """
        if start not in self._trees:
            distances = self._distances(start)
            levels: dict[int, list[int]] = {}
            for node, (_, hops) in distances.items():
                levels.setdefault(hops, []).append(node)
            tree, place = {start: start}, {start: 0}
            for hops in range(1, len(levels)):
                # Ways of as many hops compare node by node: by their first part, then by their last node.
                for node in levels[hops]:
                    tree[node] = min(self._before(start, node, distances), key=place.__getitem__)
                ordered = sorted(levels[hops], key=lambda node: (place[tree[node]], node))
                place.update((node, index) for index, node in enumerate(ordered))
            self._trees[start] = tree
        return self._trees[start]

    def _before(self, start: int, node: int, distances: dict[int, tuple[int, int]]) -> list[int]:
        """The nodes from which a best way may take its last step to *node*."""
        length, hops = distances[node]
        return [
            previous
            for previous, step in self._neighbours[node].items()
            if (previous == start or self._through[previous]) and distances.get(previous) == (length - step, hops - 1)
        ]

    def _distances(self, start: int) -> dict[int, tuple[int, int]]:
        """(length, hops) of the best way from *start* to every node that can be reached."""
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


def _hash(*names: str) -> int:
    """The same number in every process."""
    return int.from_bytes(hashlib.sha256("\x00".join(names).encode()).digest()[:8], "big")
