"""The edges and weights of each round, computed by every rank alike.

Ranks are always returned in ascending order, so sums over neighbours have the same order everywhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import networkx
import numpy as np
import numpy.typing as npt

from simcluster.overlays.shapes import Graph, Misfit

Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Round:
    """The edges of one round: rank i sends to *receivers*[i] and receives from *senders*[i]."""

    receivers: tuple[tuple[int, ...], ...]
    senders: tuple[tuple[int, ...], ...]

    @property
    def symmetric(self) -> bool:
        return self.receivers == self.senders

    @property
    def balanced(self) -> bool:
        """Whether a rank can compute doubly stochastic weights from what it knows of its neighbours."""
        return self.symmetric or len({len(ranks) for ranks in (*self.receivers, *self.senders)}) == 1


class Overlay:
    """*size* ranks with the edges *graph_of*(round) in round 0, 1, ...

    *window*: number of rounds that together must be connected. *repeats*: whether the rounds then repeat; if not, any
    two ranks may become neighbours. *key_of*: rounds with equal keys have equal graphs. Raise Misfit unless every rank
    can reach every other.
    """

    def __init__(
        self, size: int, graph_of: Callable[[int], Graph], *, window: int = 1, repeats: bool = True,
        key_of: Callable[[int], int] = lambda round_: 0,
    ) -> None:  # fmt: skip
        self.size, self.window, self.repeats = size, window, repeats
        self._key_of = key_of
        self._drawn = lru_cache(maxsize=64)(lambda key: _round(graph_of(key), size))
        self._first = [self.round(number) for number in range(window)]
        _check_connected(size, self._first)

    @property
    def changing(self) -> bool:
        return self.window > 1 or not self.repeats

    @property
    def balanced(self) -> bool:
        """Whether every round has doubly stochastic weights: it is symmetric, or has one in- and out-degree."""
        return all(each.balanced for each in self._first)

    @property
    def symmetric(self) -> bool:
        """Whether every edge goes both ways, in every round."""
        return all(each.symmetric for each in self._first)

    def round(self, number: int) -> Round:
        """Return the edges of round *number*, from 0."""
        return self._drawn(self._key_of(number))

    def receivers(self, rank: int, number: int = 0) -> tuple[int, ...]:
        """Return the ranks that *rank* sends to in round *number*."""
        return self.round(number).receivers[rank]

    def senders(self, rank: int, number: int = 0) -> tuple[int, ...]:
        """Return the ranks that send to *rank* in round *number*."""
        return self.round(number).senders[rank]

    def neighbours(self, rank: int) -> tuple[int, ...]:
        """Return the ranks that *rank* exchanges anything with in any round."""
        receivers, senders = self.ever(rank)
        return tuple(sorted(receivers | senders))

    def ever(self, rank: int) -> tuple[frozenset[int], frozenset[int]]:
        """Return (the ranks that *rank* ever sends to, the ranks that ever send to it)."""
        if not self.repeats:
            others = frozenset(range(self.size)) - {rank}
            return others, others
        receivers = frozenset(other for each in self._first for other in each.receivers[rank])
        return receivers, frozenset(other for each in self._first for other in each.senders[rank])

    def weights(self, rank: int, number: int = 0, lost: Collection[int] = ()) -> dict[int, float]:
        """Return row *rank* of W in round *number*: the weights of itself and of each rank that sends to it.

        Metropolis weights (Xiao and Boyd 2004), 1 / (1 + the larger degree of the two), if edges go both ways;
        uniform ones, 1 / (1 + degree), if all ranks have one in-degree and out-degree. The rank keeps the rest, so W
        is doubly stochastic. It also keeps the weights of *lost* neighbours: if edges go both ways, W stays doubly
        stochastic among the survivors. Raise ValueError if there are no such weights.
        """
        edges = self.round(number)
        if not edges.balanced:
            raise ValueError("a directed overlay of unequal degrees has no doubly stochastic weights: use shares")
        degree = [len(ranks) for ranks in edges.senders]
        there = [other for other in edges.senders[rank] if other not in lost]
        row = {other: 1.0 / (1 + max(degree[rank], degree[other])) for other in there}
        row[rank] = 1.0 - sum(row.values())
        return dict(sorted(row.items()))

    def share(self, rank: int, number: int = 0, lost: Collection[int] = ()) -> float:
        """Return the share that *rank* sends to each receiver, and keeps as well; columns of shares sum to 1."""
        return 1.0 / (1 + sum(other not in lost for other in self.receivers(rank, number)))

    def matrix(self, number: int = 0, lost: Collection[int] = ()) -> Matrix:
        """Return W of round *number*, a row of `weights` per rank; rows and columns of *lost* ranks are 0."""
        matrix = np.zeros((self.size, self.size))
        for rank in set(range(self.size)).difference(lost):
            row = self.weights(rank, number, lost)
            matrix[rank, list(row)] = list(row.values())
        return matrix

    def push_matrix(self, number: int = 0, lost: Collection[int] = ()) -> Matrix:
        """Return P of round *number*, a column of `share` per rank."""
        matrix = np.zeros((self.size, self.size))
        for rank in set(range(self.size)).difference(lost):
            others = {rank, *self.receivers(rank, number)}.difference(lost)
            matrix[list(others), rank] = self.share(rank, number, lost)
        return matrix

    @cached_property
    def asking(self) -> frozenset[int]:
        """One of two sides of the ranks such that the edges between the sides connect all ranks.

        Even against odd ranks if these connect, which halves a complete graph; else even against odd distance from
        rank 0, so that every edge of a spanning tree crosses.
        """
        edges = [part for each in self._first for part in (each.receivers, each.senders)]
        neighbours = [set(itertools.chain.from_iterable(part[rank] for part in edges)) for rank in range(self.size)]
        number: Sequence[int] = range(self.size)
        across = [[b for b in others if (a - b) % 2] for a, others in enumerate(neighbours)]
        if len(_distances(across)) < self.size:
            distances = _distances(neighbours)
            number = [distances[rank] for rank in range(self.size)]
        return frozenset(rank for rank in range(self.size) if number[rank] % 2 == 0)


def spectral_gap(matrix: Matrix) -> float:
    """Return 1 - |lambda_2| of a stochastic *matrix*: 1 averages in one round, 0 never."""
    if len(matrix) == 1:
        return 1.0
    return 1.0 - float(sorted(abs(np.linalg.eigvals(matrix)))[-2])


def _round(graph: Graph, size: int) -> Round:
    receivers, senders = (
        tuple(tuple(sorted(adjacent[rank])) for rank in range(size))
        for adjacent in (graph.adj, graph.pred if isinstance(graph, networkx.DiGraph) else graph.adj)
    )
    return Round(receivers, senders)


def _union(size: int, rounds: Collection[Round]) -> networkx.DiGraph[int]:
    graph: networkx.DiGraph[int] = networkx.DiGraph()
    graph.add_nodes_from(range(size))
    graph.add_edges_from((a, b) for each in rounds for a, others in enumerate(each.receivers) for b in others)
    return graph


def _distances(adjacent: Sequence[Collection[int]]) -> dict[int, int]:
    """Return the distance from rank 0 of each rank that it reaches over the edges *adjacent*, nearest first."""
    found, reached = {0: 0}, [0]
    for rank in reached:  # grows
        for other in adjacent[rank]:
            if other not in found:
                found[other] = found[rank] + 1
                reached.append(other)
    return found


def _check_connected(size: int, rounds: Sequence[Round]) -> None:
    if len(rounds) == 1 and all(len(_distances(edges)) == size for edges in (rounds[0].receivers, rounds[0].senders)):
        return
    graph = _union(size, rounds)
    parts = sorted(sorted(part) for part in networkx.weakly_connected_components(graph))
    if len(parts) > 1:
        raise Misfit(f"a connected graph, not one of {len(parts)} parts: {_in_words(parts)}")
    parts = sorted(sorted(part) for part in networkx.strongly_connected_components(graph))
    if len(parts) > 1:
        raise Misfit(f"a path from every rank to every other, which exists only within {_in_words(parts)}")


def _in_words(parts: list[list[int]]) -> str:
    shown = ["{" + ", ".join([*map(str, part[:8]), *(["..."] if len(part) > 8 else [])]) + "}" for part in parts[:6]]
    return " ".join([*shown, *([f"and {len(parts) - 6} more"] if len(parts) > 6 else [])])
