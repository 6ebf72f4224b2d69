"""The best pipelines on a cluster: try all orders of a few nodes, or search locally among many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations

from simcluster.lm.plan.cluster_model_costs import ClusterModelCosts, LayerCut
from simcluster.topology.model.orders import moves

EXACT = 6
"""Every order of the workers is tried if there are at most this many."""

MOST = 10_000
"""Limit on a local search: the total number of stages in all orders that it tries."""


class PipelineSearch:
    """A search for the best pipelines on *shelf* for *requests*.

    *like* has good orders on a similar cluster, from which the search starts.
    """

    def __init__(self, shelf: ClusterModelCosts, requests: int, like: Sequence[tuple[str, ...]] = ()) -> None:
        self._shelf, self._requests = shelf, requests
        self._tried: dict[tuple[str, ...], LayerCut | None] = {}
        self._names = shelf.names
        self._stages = 0
        if like or len(self._names) > EXACT:
            self._begin(like)
        else:
            for k in range(1, len(self._names) + 1):
                for order in permutations(self._names, k):
                    self._try(order)

    @property
    def cuts(self) -> Iterator[LayerCut]:
        return (cut for cut in self._tried.values() if cut is not None)

    def best(self) -> Mapping[int, LayerCut]:
        """Return number of stages -> the fastest pipeline with that many; ties go to the first."""
        found: dict[int, LayerCut] = {}
        for cut in self.cuts:
            k = len(cut.order)
            if k not in found or cut.token_s < found[k].token_s:
                found[k] = cut
        return dict(sorted(found.items()))

    def _try(self, order: tuple[str, ...]) -> float:
        """Return the seconds per token of each request in a pipeline with the stages in *order*.

        Return infinity if the model does not fit.
        """
        if order not in self._tried:
            self._tried[order] = self._shelf.cut(order, self._requests)
            self._stages += len(order)
        cut = self._tried[order]
        return cut.token_s if cut is not None else float("inf")

    def _begin(self, like: Sequence[tuple[str, ...]]) -> None:
        """Search locally.

        Start with *like*, with each single node, and with the fastest and the roomiest nodes in the
        order of the file. Then improve the best order of all, and the best order of each length.
        """
        names = self._names
        shelf = self._shelf
        by_speed = sorted(names, key=lambda name: shelf.pace(name, 1).layer_s)
        by_room = sorted(by_speed, key=lambda name: -shelf.room(name, False, False, self._requests))
        for ordered in (by_speed, by_room):
            for k in range(1, min(len(names), shelf.shape.layers) + 1):
                self._try(tuple(name for name in names if name in ordered[:k]))
        for order in (*like, *((name,) for name in names)):
            self._try(order)
        self._improve(min(self._tried, key=self._try), by_speed, fixed=False)
        for cut in self.best().values():
            self._improve(cut.order, by_speed, fixed=True)

    def _improve(self, best: tuple[str, ...], by_speed: list[str], *, fixed: bool) -> None:
        """Swap, replace, drop or insert nodes while that helps; if *fixed*, keep the length."""
        ranks = {name: rank for rank, name in enumerate(self._names)}
        again = True
        while again:
            again = False
            for move in moves(tuple(ranks[name] for name in best), [ranks[name] for name in by_speed], fixed=False):
                if self._stages > MOST:
                    return
                order = tuple(self._names[rank] for rank in move)
                if len(order) == len(best) or not fixed:
                    again = self._try(order) < self._try(best)
                if again:
                    best = order
                    break
