"""The option `batched`: gradients that nodes have asked for, and none has needed yet, are computed in groups.

A node's gradient is computed before anything else of that node runs, like work in a thread; until then nothing can
change what it depends on. All gradients of equal shapes that wait at that moment are computed with it. So what groups
there are depends on virtual time alone, and no time depends on them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from typing import Any

from simcluster.compute.at_work import at_work
from simcluster.workloads import Batch, Replica
from simcluster.workloads.grouped import Found, Grouped
from simcluster_backends.sim.loop.workers import Piece

MOST, MOST_BYTES = 32, 256 * 1024**2
"""The most gradients of a group, and about the most memory: more is no faster, since it does not fit a cache."""


class Gradient(Piece[Found]):
    """A piece of work: *replica*'s gradients of *batch*."""

    __slots__ = ("_group", "batch", "replica")

    def __init__(self, replica: Replica, batch: Batch, group: Group) -> None:
        super().__init__(partial(replica.loss_and_gradients, batch))
        self.replica, self.batch, self._group = replica, batch, group

    def wait(self) -> None:
        """Return when the gradients of the whole group are computed."""
        self._group.compute()

    def take(self, result: Found) -> None:
        self._result = result


class Group:
    """Gradients of equal shapes that wait to be computed by *grouped*, with about *bytes_each* of memory."""

    def __init__(self, grouped: Grouped, bytes_each: int, waiting: Waiting) -> None:
        self._grouped, self._waiting, self.bytes_each = grouped, waiting, bytes_each
        self.asked: list[Gradient] = []
        self.is_open = True

    def compute(self) -> None:
        """Compute all gradients of the group, once."""
        asked, self.asked, self.is_open = self.asked, [], False
        if not asked:
            return
        self._waiting.count(len(asked))
        if len(asked) > 1:
            weights, batches = [one.replica.parameters for one in asked], [one.batch for one in asked]
            work = partial(self._grouped.loss_and_gradients, weights, batches)
            with suppress(Exception):  # raised again by the one that it is about
                for one, result in zip(asked, at_work(work), strict=True):
                    one.take(result)
                return
        for one in asked:
            one.run()


class Waiting:
    """The groups that wait, by workload and shapes; and how many gradients were computed, in groups and in all."""

    def __init__(self) -> None:
        self._groups: dict[Hashable, Group] = {}
        self._gradients = self._together = self._largest = 0

    def ask(self, work: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Gradient | None:
        """Return the piece of *work*, which waits; None if it is something else than a replica's gradients."""
        replica = getattr(work, "__self__", None)
        if not (isinstance(replica, Replica) and getattr(work, "__func__", None) is Replica.loss_and_gradients):
            return None
        if kwargs or len(args) != 1 or not isinstance(batch := args[0], Batch) or (grouped := replica.grouped) is None:
            return None
        key = (grouped, *((tensor.shape, tensor.dtype) for tensor in batch.tensors))
        group = self._groups.get(key)
        if group is None or not group.is_open or len(group.asked) >= min(MOST, MOST_BYTES // group.bytes_each):
            group = self._groups[key] = Group(grouped, grouped.bytes_each(batch), self)
        gradient = Gradient(replica, batch, group)
        group.asked.append(gradient)
        return gradient

    def count(self, size: int) -> None:
        """Count a group of *size* gradients."""
        self._gradients += size
        self._together += size if size > 1 else 0
        self._largest = max(self._largest, size)

    def told(self) -> dict[str, int]:
        """Return the entry `batched` of summary.json."""
        return {"gradients": self._gradients, "together": self._together, "largest": self._largest}
