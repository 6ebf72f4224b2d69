"""Find shortest paths, the same on every machine and in both directions, and unreachable nodes."""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction

from networkx.utils import UnionFind

PACKET_BYTES = 1500

# Lengths are whole attoseconds: float sums depend on their order, and a tie that the last bit
# decides would make the path back differ from the path there.
_PER_SECOND = 10**18

Edge = tuple[str, str, float, float]
"""(one end, other end, latency_s, bandwidth_Bps)."""

_NONE: dict[int, int] = {}
"""The neighbours of a node without links: one empty dict for all such nodes."""


class Routes:
    """Paths along *edges* between the nodes *names*. Paths pass only through *gateways*.

    With *spread*, pairs are distributed over equally good paths (ECMP): at every node where these
    paths diverge, a hash of the ends' names chooses one, as in switches. Otherwise every pair uses
    the first path.
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
                length = lengths[key] = packet_length(*key)
            self._join(self._index[a], self._index[b], length)
            self._join(self._index[b], self._index[a], length)

    def _join(self, node: int, other: int, length: int) -> None:
        known = self._neighbours[node]
        if not known:
            self._neighbours[node] = self._ends.setdefault((other, length), {other: length})
        elif len(known) == 1:  # the dict may be shared, so copy it
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
        # All paths of a node with one link lead through its neighbour. Searching from the neighbour
        # needs only one search per switch of a star or tree, however many nodes are attached.
        inner_start, inner_end = self._only_exit(start), self._only_exit(end)
        if any(gate != node and not self._through[gate] for gate, node in ((inner_start, start), (inner_end, end))):
            return None
        path = self._inner(inner_start, inner_end, (start, end))
        return path and [start] * (inner_start != start) + path + [end] * (inner_end != end)

    def _inner(self, start: int, end: int, users: tuple[int, int]) -> list[int] | None:
        """Return the first of the best paths, or with *spread* the one for the pair *users*."""
        if start == end:
            return [start]  # no search is needed, as between the leaves of a star
        if self._spread and start not in self._distances_from:
            self._distances_from[start] = self._distances(start)
        distances, tree = (self._distances_from[start], {}) if self._spread else ({}, self._tree(start))
        if end not in (distances or tree):
            return None
        path = [end]
        while (node := path[-1]) != start:
            if self._spread:
                ways = sorted(self._before(start, node, distances))
                # Python's own hash of a string differs between processes, so use SHA-256.
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

        The best path is the shortest. Ties go to the one with the fewest hops, then to the one
        through the earliest nodes.
        """
        if start not in self._trees:
            distances = self._distances(start)
            levels: dict[int, list[int]] = {}
            for node, (_, hops) in distances.items():
                levels.setdefault(hops, []).append(node)
            tree, place = {start: start}, {start: 0}
            for hops in range(1, len(levels)):
                # Paths with the same number of hops compare by their prefix, then the last node.
                for node in levels[hops]:
                    tree[node] = min(self._before(start, node, distances), key=place.__getitem__)
                ordered = sorted(levels[hops], key=lambda node: (place[tree[node]], node))
                place.update((node, index) for index, node in enumerate(ordered))
            self._trees[start] = tree
        return self._trees[start]

    def _before(self, start: int, node: int, distances: dict[int, tuple[int, int]]) -> list[int]:
        """Return the predecessors of *node* on all best paths from *start*."""
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


def packet_length(latency_s: float, bandwidth_Bps: float) -> int:
    packet_s = Fraction(latency_s) + Fraction(PACKET_BYTES) / Fraction(bandwidth_Bps)
    return round(packet_s * _PER_SECOND)


def cut_off(workers: Sequence[str], links: Iterable[tuple[str, str]], gateways: frozenset[str]) -> list[str]:
    """Return the *workers* that cannot reach all others through *gateways*.

    If the workers form several groups, those outside the largest group are cut off. A route
    may end at any node but pass only through gateways. So two workers reach each other if a link
    joins them, or if both are attached to, or belong to, one connected component of the gateways.
    The time is linear except in rare cases.
    """
    component = UnionFind(gateways)  # gateway -> representative, which differs between processes
    beside: dict[str, list[str]] = {}
    for a, b in links:
        beside.setdefault(a, []).append(b)
        beside.setdefault(b, []).append(a)
        if a in gateways and b in gateways:
            component.union(a, b)
    hangs_on = {}
    for name in workers:
        gates = [node for node in (name, *beside.get(name, ())) if node in gateways]
        hangs_on[name] = dict.fromkeys(component[gate] for gate in gates).keys()
    sizes = Counter(part for worker in workers for part in hangs_on[worker])
    # Of equally large components, max returns the first: the one with the lowest rank.
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
