"""A node's side of checkpoints: when one is due, what is copied, and where it goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from simcluster.checkpoints.shard import CapturedState, Shard
from simcluster.transport import Transport
from simcluster.workloads import Replica

T = TypeVar("T")


class CheckpointChannel(Protocol):
    """A backend's services for checkpoints; neither takes virtual time."""

    async def hand_in(self, make: Callable[[], Shard]) -> None:
        """Store what *make* returns with the run's checkpoints; *make* may run in another thread."""

    async def aside(self, work: Callable[[], T]) -> T:
        """Run *work* off the event loop, serialised with the work of this node's device."""


class Holder:
    """Keeper of every *every*-th step of *replica*, and the last. *judges*: rank 0's weights are evaluated each time.

    *now* returns the time of the run, *group* is the number of the group that *node* belongs to, in its *incarnation*.
    """

    def __init__(
        self,
        every: int,
        replica: Replica,
        node: Transport,
        channel: CheckpointChannel,
        now: Callable[[], float],
        *,
        judges: bool,
        group: int = 0,
        incarnation: int = 0,
    ) -> None:
        self._every, self._replica, self._node, self._channel = every, replica, node, channel
        self._place = group, node.size, incarnation
        self._now, self._judges = now, judges and node.rank == 0
        self._kept_at = replica.done
        self._next = self._after(replica.done)

    def due(self, step: int) -> bool:
        return step >= self._next or (step >= self._replica.steps and step > self._kept_at)

    async def keep(
        self, step: int, batches: int, places: Sequence[int] | None, loose: bool, kept: Mapping[str, Any]
    ) -> None:
        if not self.due(step):
            return
        self._kept_at, self._next = step, self._after(step)
        replica, time_s = self._replica, self._now()
        captured = CapturedState(replica, self._node.rng, kept, places)
        judged: dict[str, float] = {}
        if self._judges:
            weights = replica.snapshot()
            judged = await self._channel.aside(lambda: replica.evaluate_weights(weights))

        def make() -> Shard:
            trees, files = captured.trees, captured.files()
            return Shard(self._node.rank, step, batches, time_s, loose, trees, files, judged, [], *self._place)

        await self._channel.hand_in(make)

    def _after(self, step: int) -> int:
        return (step // self._every + 1) * self._every
