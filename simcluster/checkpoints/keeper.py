"""A node's side of checkpoints: it decides when one is due, copies the state and hands it in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from simcluster.checkpoints.shard import CapturedState, Shard
from simcluster.transport import Transport
from simcluster.workloads import Replica

T = TypeVar("T")


class CheckpointChannel(Protocol):
    """A backend's services for checkpoints. They take no virtual time."""

    async def hand_in(self, make: Callable[[], Shard]) -> None:
        """Call *make*, possibly in another thread, and store the shard that it returns in the run's
        checkpoints.
        """

    async def aside(self, work: Callable[[], T]) -> T:
        """Run *work* off the event loop, serialised with the work of this node's device."""


class Holder:
    """A keeper that hands in the state of *replica* at every *every*-th step and at the last step.

    *judges*: also evaluate rank 0's weights at each of these steps. *now* returns the time of the
    run. *group* and *incarnation* are the numbers of the group and of the life that *node* is in.
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
        self._every = every
        self._replica = replica
        self._node = node
        self._channel = channel
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
