"""The best pipelines of a shelf: every order of a few nodes, a local search over the orders of many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations

from simcluster.algorithms.model_parallel.placement import moves
from simcluster.inference.plan.shelf import Cut, Shelf

EXACT = 6
"""Up to this number of workers, every order is tried."""

MOST = 1500
"""Limit on the orders that a search among more workers tries."""


class Search:
    """The pipelines of *shelf* for *requests*."""

    def __init__(self, shelf: Shelf, requests: int) -> None:
        self._shelf, self._requests = shelf, requests
        self._tried: dict[tuple[str, ...], Cut | None] = {}
        self._names = shelf.topology.workers
        if len(self._names) > EXACT:
            self._improve()
        else:
            for k in range(1, len(self._names) + 1):
                for order in permutations(self._names, k):
                    self._try(order)

    @property
    def cuts(self) -> Iterator[Cut]:
        return (cut for cut in self._tried.values() if cut is not None)

    def best(self) -> Mapping[int, Cut]:
        """Return the fastest cut over each number of nodes on which the model fits; the first tried among equals."""
        found: dict[int, Cut] = {}
        for cut in self.cuts:
            k = len(cut.order)
            if k not in found or cut.token_s < found[k].token_s:
                found[k] = cut
        return dict(sorted(found.items()))

    def _try(self, order: tuple[str, ...]) -> float:
        """Return the seconds of a token of each request in *order*; infinite if the model does not fit."""
        if order not in self._tried:
            self._tried[order] = self._shelf.cut(order, self._requests)
        cut = self._tried[order]
        return cut.token_s if cut is not None else float("inf")

    def _improve(self) -> None:
        """Try the fastest and the roomiest nodes in the order of the file, each node alone, and moves from the best.

        A move swaps two nodes, replaces, drops or inserts one.
        """
        names = self._names
        by_speed = sorted(range(len(names)), key=lambda i: self._shelf.pace(names[i], 1).layer_s)
        roomy = sorted(by_speed, key=lambda i: -self._shelf.room(names[i], False, False, self._requests))
        longest = min(len(names), self._shelf.shape.layers)
        for ordered in (by_speed, roomy):
            for k in range(1, longest + 1):
                self._try(tuple(names[i] for i in sorted(ordered[:k])))
        for name in names:
            self._try((name,))
        index = {name: i for i, name in enumerate(names)}
        best, again = min(self._tried, key=self._try), True
        while again:
            again = False
            for ranks in moves(tuple(index[name] for name in best), by_speed, fixed=False):
                if len(self._tried) > MOST:
                    return
                order = tuple(names[i] for i in ranks)
                if self._try(order) < self._try(best):
                    best, again = order, True
                    break
