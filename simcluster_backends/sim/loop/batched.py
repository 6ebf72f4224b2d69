"""The option `batched`: small gradients that nodes have asked for, and none has needed yet, are computed in groups.

A node's gradient is computed before anything else of that node runs, like work in a thread; until then nothing can
change what it depends on. All gradients of equal shapes that wait at that moment are computed with it. So what groups
there are depends on virtual time alone, and no time depends on them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from simcluster.compute.at_work import at_work
from simcluster.workloads import Batch, Replica
from simcluster.workloads.grouped import Found, Grouped
from simcluster_backends.sim.loop.workers import Piece

if TYPE_CHECKING:
    from simcluster.transport import Cost

LEAST, MOST = 8, 64
"""Gradients of a group. Fewer are computed one by one: vmap alone takes as long as some small gradients."""

MOST_BYTES = 64 * 1024**2
"""About the most memory of a group: more would not fit a cache, and be no faster."""

MOST_FLOPS = 4e6
"""The most arithmetic of an operator, on average: beyond it overhead counts for little, and a larger product is slower.
"""


class Gradient(Piece[Found]):
    """A piece of work: *replica*'s gradients of *batch*."""

    __slots__ = ("_group", "batch", "is_done", "replica")

    def __init__(self, replica: Replica, batch: Batch, group: Group) -> None:
        super().__init__(partial(replica.loss_and_gradients, batch))
        self.replica, self.batch, self._group, self.is_done = replica, batch, group, False

    def wait(self) -> None:
        """Return when the gradients are computed, with others of the group if there are enough."""
        if not self.is_done:
            self._group.compute(self)

    def run(self) -> None:
        self.is_done = True
        super().run()

    def take(self, result: Found) -> None:
        self._result, self.is_done = result, True


class Group:
    """Gradients of equal shapes that wait to be computed by *grouped*, *most* of them at once."""

    def __init__(self, grouped: Grouped, most: int) -> None:
        self._grouped, self.most = grouped, most
        self._asked: dict[Gradient, None] = {}
        self.gradients = self.together = self.largest = 0  # computed so far: all, those with others, the most at once

    def ask(self, replica: Replica, batch: Batch) -> Gradient:
        gradient = Gradient(replica, batch, self)
        self._asked[gradient] = None
        return gradient

    def compute(self, needed: Gradient) -> None:
        """Compute *needed*, and with it those that have waited longest; alone if they are few."""
        del self._asked[needed]
        chosen = [needed, *islice(self._asked, self.most - 1)]
        if len(chosen) < LEAST:
            chosen = [needed]
        for other in chosen[1:]:
            del self._asked[other]
        self.gradients += len(chosen)
        self.largest = max(self.largest, len(chosen))
        if len(chosen) > 1:
            self.together += len(chosen)
            weights, batches = [one.replica.parameters for one in chosen], [one.batch for one in chosen]
            with suppress(Exception):  # raised again by the one that it is about
                found = at_work(partial(self._grouped.loss_and_gradients, weights, batches))
                for one, result in zip(chosen, found, strict=True):
                    one.take(result)
                return
        for one in chosen:
            one.run()


class Waiting:
    """The gradients that wait, by workload and shapes."""

    def __init__(self) -> None:
        self._groups: dict[Hashable, Group] = {}

    def ask(
        self, work: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], cost: Cost
    ) -> Gradient | None:
        """Return the piece of *work*, which waits; None if it is something else than small gradients of a replica."""
        replica = getattr(work, "__self__", None)
        if not (isinstance(replica, Replica) and getattr(work, "__func__", None) is Replica.loss_and_gradients):
            return None
        if kwargs or len(args) != 1 or not isinstance(batch := args[0], Batch) or (grouped := replica.grouped) is None:
            return None
        key = (grouped, *((tensor.shape, tensor.dtype) for tensor in batch.tensors))
        if key not in self._groups:
            is_small = cost.flops <= MOST_FLOPS * cost.operators
            most = min(MOST, MOST_BYTES // grouped.bytes_each(batch)) if is_small else 0
            self._groups[key] = Group(grouped, most)
        group = self._groups[key]
        return group.ask(replica, batch) if group.most >= LEAST else None

    def told(self) -> dict[str, int]:
        """Return the entry `batched` of summary.json."""
        groups = self._groups.values()
        return {
            "gradients": sum(group.gradients for group in groups),
            "together": sum(group.together for group in groups),
            "largest": max((group.largest for group in groups), default=0),
        }
