"""The receiving side of a server without a barrier: listeners that return the next push of any
worker while the server trains.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from simcluster.algorithms.parameter_server.server import SERVER, Push
from simcluster.errors import ABSENT, ENDED, PeerLost
from simcluster.overlays.hearing import arrival, heard
from simcluster.payload import Message
from simcluster.transport import ANY, Transport
from simcluster.workloads import Replica

PUSH = "push"


class PushListener:
    """A receiver of pushes, as long as any push is *expected* or may become expected.

    If no worker is left, a *busy* server (by default: one that is still training) continues and
    looks for workers after each step. A server that only serves fails when its last worker is lost,
    unless some worker has pushed everything.
    """

    def __init__(
        self, node: Transport, expected: Callable[[], bool], busy: Callable[[], bool] | None = None, tag: str = PUSH
    ) -> None:
        self._node = node
        self._expected = expected
        self._tag = tag
        self._busy = busy or (lambda: self._own is not None and not self._own.done())
        self._looked = asyncio.Event()
        self._own: asyncio.Task[None] | None = None
        self._heard = False
        self.is_through = False  # some worker has pushed everything

    def train(self, tasks: asyncio.TaskGroup, training: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start the server's own *training* as a task and return the task."""
        self._own = tasks.create_task(training)
        self._own.add_done_callback(lambda _: self.look())
        return self._own

    def look(self) -> None:
        """Look for workers that have joined or rejoined, and serve them from now on. Call this
        after each step.
        """
        self._looked.set()

    async def looked(self) -> None:
        """Wait for the next `look`."""
        self._looked.clear()
        await self._looked.wait()

    def came(self, push: Push) -> None:
        """Note that *push* has arrived."""

    def lost(self, loss: PeerLost) -> None:
        """Note that *loss* was raised."""

    def gone(self, loss: PeerLost) -> None:
        """Note that a send failed with *loss*.

        If the rank rejoins soon enough, `lost` is never called.
        """

    async def next(self) -> Message | PeerLost | None:
        """Wait for the next push or loss and return it. Return None when no more pushes can come
        and the server is not busy.

        Raise PeerLost, with reason ENDED, if this server rejoined too late: the workers ended
        without pushing anything to it. Raise a worker's loss if this server only serves and has no
        worker left.
        """
        found: Message | PeerLost | None = None
        while found is None:
            if not self._expected() and self._busy():
                await self.looked()
                found = None if self._expected() else await heard(self._node, ANY, self._tag)
            elif self._expected() or await self._must_wait():
                found = await arrival(self._node, ANY, self._tag)
            else:
                return None
        if isinstance(found, PeerLost):
            await self._check_in_time()
        else:
            self._heard = True
            self.is_through = self.is_through or bool(found.payload.values.get("last"))
        return found

    async def _must_wait(self) -> bool:
        """Return whether a server that only serves must wait for a worker to join. Raise PeerLost
        if all are lost or absent, unless all are merely absent.
        """
        if self._own is not None or self.is_through or self._node.peers:
            return False
        others = [rank for rank in range(self._node.size) if rank != self._node.rank]
        told = [await heard(self._node, rank) for rank in others]
        losses = [lost for lost in told if isinstance(lost, PeerLost)]
        if any(lost.reason == ENDED for lost in losses):
            return False
        for lost in losses if len(losses) == len(others) else ():
            if lost.reason != ABSENT:
                raise lost
        return True

    async def _check_in_time(self) -> None:
        for rank in range(self._node.size) if not (self._heard or self._node.peers) else ():
            lost = await heard(self._node, rank) if rank != self._node.rank else None
            if isinstance(lost, PeerLost) and lost.reason == ENDED:
                raise lost


class ExpectedPushes(PushListener):
    """A listener that counts the pushes that are left: each of *ranks* makes one push per *batches*
    batches.

    A rank that rejoins starts over.
    """

    def __init__(self, node: Transport, replica: Replica, ranks: Iterable[int], batches: int = 1) -> None:
        super().__init__(node, self._may_come)
        self._each = -(-replica.steps // batches)
        self._left = {rank: self._each - -(-replica.done_by(rank) // batches) for rank in ranks}
        self._note_workers()

    def _note_workers(self) -> None:
        self._to_come = {rank: None for rank, left in self._left.items() if left and rank != SERVER}

    def left(self) -> set[int]:
        """Return the ranks that are present and have pushes left."""
        there = {SERVER, *self._node.peers}
        return {rank for rank, left in self._left.items() if left and rank in there}

    def came(self, push: Push) -> None:
        self._left[push.rank] = left = self._left.get(push.rank, self._each) - 1
        if not left:
            self._to_come.pop(push.rank, None)
            self.is_through = True
        elif push.rank != SERVER:
            self._to_come[push.rank] = None

    def lost(self, loss: PeerLost) -> None:
        """Drop the rank of *loss*, which is raised only after all the rank's messages.

        A worker that ended well raises no loss.
        """
        there = {SERVER, *self._node.peers}  # only for membership tests
        self._left = {rank: left for rank, left in self._left.items() if rank in there and rank != loss.rank}
        self._note_workers()

    def gone(self, loss: PeerLost) -> None:
        """Drop a rank that a reply did not reach, since it may rejoin before its loss is raised."""
        self._left.pop(loss.rank, None)
        self._to_come.pop(loss.rank, None)

    def _may_come(self) -> bool:
        """Return whether any worker has pushes left or has just joined."""
        return bool(self._to_come) or any(rank not in self._left for rank in self._node.peers)


class PushRounds(PushListener):
    """A listener that expects pushes until all workers have ended or are lost; each push says
    whether it is its worker's `last`.
    """

    def __init__(self, node: Transport, replica: Replica) -> None:
        workers = set(range(node.size)) - {node.rank}
        self._training = {rank for rank in workers if replica.done_by(rank) < replica.steps}
        self._through = workers - self._training
        super().__init__(node, self._may_come)

    def _may_come(self) -> bool:
        return bool(self._training) or any(rank not in self._through for rank in self._node.peers)

    def came(self, push: Push) -> None:
        """Track whether the worker of *push* still trains. A worker that rejoined starts over, so
        it trains again.
        """
        if push.rank != self._node.rank:
            (self._training.discard if push["last"] else self._training.add)(push.rank)
            (self._through.add if push["last"] else self._through.discard)(push.rank)

    def lost(self, loss: PeerLost) -> None:
        """Handle a loss: no worker that has left the group, even after a normal end, pushes any
        more.
        """
        self._training.intersection_update(self._node.peers)
        self._through.discard(loss.rank)


class PushClocks(PushListener):
    """A listener with a clock for each rank that has pushes left: the number of pushes that the
    rank has made.

    A rank waits to read while its clock is more than *bound* ahead of the slowest clock; if *bound*
    is None, no rank waits. A rank that a checkpoint restores further ahead starts at the bound.
    """

    def __init__(self, node: Transport, replica: Replica, ranks: Sequence[int], bound: int | None) -> None:
        super().__init__(node, self._may_come)
        done = {rank: replica.done_by(rank) for rank in ranks}
        there = (SERVER, *node.peers)
        self._clock = {rank: done[rank] for rank in ranks if rank in there and done[rank] < replica.steps}
        if bound is not None:
            most = self._slowest() + bound
            self._clock = {rank: min(clock, most) for rank, clock in self._clock.items()}
        self._through = {rank for rank in ranks if done[rank] >= replica.steps}
        self._waiting: dict[int, Push] = {}  # rank that waits to read -> its last push
        self._bound = bound

    def tick(self, push: Push) -> int:
        """Advance the clock of the rank of *push*, which then waits to read.

        Return the lead of the fastest clock over the slowest.

        A rank that joins late or rejoins starts at the slowest rank's clock.
        """
        self._clock[push.rank] = self._clock.get(push.rank, self._slowest()) + 1
        self._waiting[push.rank] = push
        return max(self._clock.values()) - self._slowest()

    def free(self) -> list[Push]:
        """Return the last pushes of the waiting ranks that are within the bound, in rank order."""
        slowest = self._slowest()
        waiting = [self._waiting[rank] for rank in sorted(self._waiting)]
        return [push for push in waiting if self._bound is None or self._clock[push.rank] - slowest <= self._bound]

    def go_on(self, push: Push) -> None:
        """Let the rank of *push* read.

        If this was its last push, the rank has ended and loses its clock.
        """
        del self._waiting[push.rank]
        if push["last"]:
            del self._clock[push.rank]
            self._through.add(push.rank)

    def lost(self, loss: PeerLost) -> None:
        """Drop the clocks of the lost rank, which may have rejoined already, and of all absent
        ranks.
        """
        self._through.discard(loss.rank)
        for rank in [rank for rank in self._clock if rank == loss.rank or rank not in (SERVER, *self._node.peers)]:
            del self._clock[rank]
            self._waiting.pop(rank, None)

    def _slowest(self) -> int:
        return min(self._clock.values(), default=0)

    def _may_come(self) -> bool:
        """Return whether any worker has a push left or has just joined."""
        return any(rank != SERVER for rank in self._clock) or any(
            rank not in self._through for rank in self._node.peers
        )
