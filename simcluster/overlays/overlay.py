"""The edges and weights of an overlay in each round. Every rank computes them for itself.

Ranks are always returned in ascending order, so that every rank adds its neighbours in the same
order.
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
        """Whether the round has doubly stochastic weights that a rank can compute from the degrees
        of its neighbours.
        """
        return self.symmetric or len({len(ranks) for ranks in (*self.receivers, *self.senders)}) == 1


class Overlay:
    """An overlay of *size* ranks. Round t has the edges *graph_of*(*key_of*(t)), for t = 0, 1, ...

    Rounds with equal keys have equal graphs. *window*: the number of rounds, from the first, whose
    edges together must connect every rank to every other; if they do not, raise Misfit. *repeats*:
    whether the rounds after the window repeat it; if not, any two ranks may become neighbours.
    """

    def __init__(
        self, size: int, graph_of: Callable[[int], Graph], *, window: int = 1, repeats: bool = True,
        key_of: Callable[[int], int] = lambda round_: 0,
    ) -> None:  # fmt: skip
        self.size = size
        self.window = window
        self.repeats = repeats
        self._key_of = key_of
        self._drawn = lru_cache(maxsize=64)(lambda key: _round(graph_of(key), size))
        self._first = [self.round(number) for number in range(window)]
        _check_connected(size, self._first)

    @property
    def changing(self) -> bool:
        return self.window > 1 or not self.repeats

    @property
    def balanced(self) -> bool:
        """Whether every round has doubly stochastic weights: its edges go both ways, or all in- and
        out-degrees are equal.
        """
        return all(each.balanced for each in self._first)

    @property
    def symmetric(self) -> bool:
        """Whether every edge goes both ways in every round."""
        return all(each.symmetric for each in self._first)

    def round(self, number: int) -> Round:
        """Return the edges of round *number*; rounds count from 0."""
        return self._drawn(self._key_of(number))

    def receivers(self, rank: int, number: int = 0) -> tuple[int, ...]:
        """Return the ranks that *rank* sends to in round *number*."""
        return self.round(number).receivers[rank]

    def senders(self, rank: int, number: int = 0) -> tuple[int, ...]:
        """Return the ranks that send to *rank* in round *number*."""
        return self.round(number).senders[rank]

    def neighbours(self, rank: int) -> tuple[int, ...]:
        """Return the ranks that *rank* sends to or receives from in any round."""
        receivers, senders = self.ever(rank)
        return tuple(sorted(receivers | senders))

    def ever(self, rank: int) -> tuple[frozenset[int], frozenset[int]]:
        """Return (the ranks that *rank* sends to in some round, the ranks that send to it in some
        round).
        """
        if not self.repeats:
            others = frozenset(range(self.size)) - {rank}
            return others, others
        receivers = frozenset(other for each in self._first for other in each.receivers[rank])
        return receivers, frozenset(other for each in self._first for other in each.senders[rank])

    def weights(self, rank: int, number: int = 0, lost: Collection[int] = ()) -> dict[int, float]:
        """Return row *rank* of W in round *number*: the weights of *rank* itself and of each rank
        that sends to it.

        If edges go both ways, these are Metropolis weights (Xiao and Boyd 2004): 1 / (1 + the
        larger degree of the two ranks). If all in- and out-degrees are equal, each weight is 1 / (1
        + degree). In both cases the rank's own weight is the remainder, so W is doubly stochastic.
        The weights of *lost* neighbours are added to the rank's own weight; if edges go both ways,
        W stays doubly stochastic among the survivors. Raise ValueError for an overlay that is not
        balanced.
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
        """Return the share of its value that *rank* sends to each receiver in round *number*, and
        also keeps.

        The shares of a rank add up to 1.
        """
        return 1.0 / (1 + sum(other not in lost for other in self.receivers(rank, number)))

    def matrix(self, number: int = 0, lost: Collection[int] = ()) -> Matrix:
        """Return W of round *number*: row i holds the `weights` of rank i; the rows and columns of
        *lost* ranks are 0.
        """
        matrix = np.zeros((self.size, self.size))
        for rank in set(range(self.size)).difference(lost):
            row = self.weights(rank, number, lost)
            matrix[rank, list(row)] = list(row.values())
        return matrix

    def push_matrix(self, number: int = 0, lost: Collection[int] = ()) -> Matrix:
        """Return P of round *number*: column i holds the `share` of rank i in the rows of its
        receivers and of rank i itself.
        """
        matrix = np.zeros((self.size, self.size))
        for rank in set(range(self.size)).difference(lost):
            others = {rank, *self.receivers(rank, number)}.difference(lost)
            matrix[list(others), rank] = self.share(rank, number, lost)
        return matrix

    @cached_property
    def asking(self) -> frozenset[int]:
        """One of two halves of the ranks, chosen such that the edges between the halves connect all
        ranks.

        If the edges between even and odd ranks connect all, the half is the even ranks; this splits
        a complete graph evenly. Otherwise it is the ranks at an even distance from rank 0, so that
        every edge of a spanning tree joins the two halves.
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
    """Return 1 - |lambda_2| of a stochastic *matrix*.

    With a gap of 1, a single round computes the mean; with a gap of 0, rounds do not converge to
    it.
    """
    if len(matrix) == 1:
        return 1.0
    return 1.0 - float(sorted(abs(np.linalg.eigvals(matrix)))[-2])


def _round(graph: Graph, size: int) -> Round:
    receivers, senders = (
        tuple(tuple(sorted(adjacent[rank])) for rank in range(size))
        for adjacent in (graph.adj, graph.pred if isinstance(graph, networkx.DiGraph) else graph.adj)
    )
    return Round(receivers, senders)


def _distances(adjacent: Sequence[Collection[int]]) -> dict[int, int]:
    """Return rank -> distance from rank 0 over the edges *adjacent*, nearest ranks first.

    Ranks that cannot be reached are left out.
    """
    found, reached = {0: 0}, [0]
    for rank in reached:  # the list grows while it is read: breadth-first search
        for other in adjacent[rank]:
            if other not in found:
                found[other] = found[rank] + 1
                reached.append(other)
    return found


def _check_connected(size: int, rounds: Sequence[Round]) -> None:
    if len(rounds) == 1 and all(len(_distances(edges)) == size for edges in (rounds[0].receivers, rounds[0].senders)):
        return
    graph: networkx.DiGraph[int] = networkx.DiGraph()
    graph.add_nodes_from(range(size))
    graph.add_edges_from((a, b) for each in rounds for a, others in enumerate(each.receivers) for b in others)
    parts = sorted(sorted(part) for part in networkx.weakly_connected_components(graph))
    if len(parts) > 1:
        raise Misfit(f"a connected graph, not one of {len(parts)} parts: {_in_words(parts)}")
    parts = sorted(sorted(part) for part in networkx.strongly_connected_components(graph))
    if len(parts) > 1:
        raise Misfit(f"a path from every rank to every other, which exists only within {_in_words(parts)}")


def _in_words(parts: list[list[int]]) -> str:
    shown = ["{" + ", ".join([*map(str, part[:8]), *(["..."] if len(part) > 8 else [])]) + "}" for part in parts[:6]]
    return " ".join([*shown, *([f"and {len(parts) - 6} more"] if len(parts) > 6 else [])])
