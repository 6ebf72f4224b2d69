"""A server's side of asynchronous rounds: the next push of any worker, while the server trains."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final

from simcluster.algorithms.parameter_server.server import SERVER, Push
from simcluster.errors import ABSENT, ENDED, PeerLost
from simcluster.overlays.hearing import arrival, heard
from simcluster.payload import Message
from simcluster.transport import ANY, Transport
from simcluster.workloads import Replica

PUSH: Final = "push"


class PushListener:
    """A receiver of pushes, as long as any are *expected*, or may become so.

    Without any worker, a *busy* server (by default: one that is still training) continues, and looks for workers after
    each step. A server that only serves fails with its workers, unless one of them `is_through`.
    """

    def __init__(
        self, node: Transport, expected: Callable[[], bool], busy: Callable[[], bool] | None = None, tag: str = PUSH
    ) -> None:
        self._node, self._expected, self._tag = node, expected, tag
        self._busy = busy or (lambda: self._own is not None and not self._own.done())
        self._looked = asyncio.Event()
        self._own: asyncio.Task[None] | None = None
        self._heard = False
        self.is_through = False  # some worker has pushed everything

    def train(self, tasks: asyncio.TaskGroup, training: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start and return the server's own *training*."""
        self._own = tasks.create_task(training)
        self._own.add_done_callback(lambda _: self.look())
        return self._own

    def look(self) -> None:
        """Look for workers: one that has (re)joined is served from now on. Call it after each step."""
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
        """Note that a send failed with *loss*. `lost` is not called for a rank that rejoins first."""

    async def next(self) -> Message | PeerLost | None:
        """Return the next push or loss; None when no push is to come and the server is not busy.

        Raise PeerLost, with reason ENDED, if the workers ended before pushing anything to this server, which rejoined
        too late. Raise a worker's loss if this server only serves and has no worker left.
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
        """Return whether a server that only serves must wait for a worker to join. Raise PeerLost if all are lost."""
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
    """The pushes that *ranks* have left, one per *batches*; all of them from a worker that (re)joins."""

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
        """Handle *loss*, raised after all messages of that rank. A worker that ended well raises none."""
        there = {SERVER, *self._node.peers}  # only for membership tests
        self._left = {rank: left for rank, left in self._left.items() if rank in there and rank != loss.rank}
        self._note_workers()

    def gone(self, loss: PeerLost) -> None:
        """Handle a failed reply to a rank, which may rejoin before its loss is raised."""
        self._left.pop(loss.rank, None)
        self._to_come.pop(loss.rank, None)

    def _may_come(self) -> bool:
        """Return whether any worker has pushes left or has just joined."""
        return bool(self._to_come) or any(rank not in self._left for rank in self._node.peers)


class PushRounds(PushListener):
    """Pushes, each marked whether it is its worker's `last`, until all workers have ended or are lost."""

    def __init__(self, node: Transport, replica: Replica) -> None:
        workers = set(range(node.size)) - {node.rank}
        self._training = {rank for rank in workers if replica.done_by(rank) < replica.steps}
        self._through = workers - self._training
        super().__init__(node, self._may_come)

    def _may_come(self) -> bool:
        return bool(self._training) or any(rank not in self._through for rank in self._node.peers)

    def came(self, push: Push) -> None:
        """Track *push*: a worker that rejoined starts over, and is in training again."""
        if push.rank != self._node.rank:
            (self._training.discard if push["last"] else self._training.add)(push.rank)
            (self._through.add if push["last"] else self._through.discard)(push.rank)

    def lost(self, loss: PeerLost) -> None:
        """Handle a loss: a worker that is gone, even one that ended well, pushes no more."""
        self._training.intersection_update(self._node.peers)
        self._through.discard(loss.rank)


class PushClocks(PushListener):
    """Counts of the pushes of each of *ranks* that has any left. A rank waits to read while its clock is more than
    *bound* ahead of the slowest; None is no bound. A rank that a checkpoint restores further ahead starts at the bound.
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
        self._waiting: dict[int, Push] = {}  # to read, since these pushes
        self._bound = bound

    def tick(self, push: Push) -> int:
        """Count *push*, after which its rank waits to read. Return the fastest rank's lead over the slowest.

        A rank that joins late or rejoins starts at the slowest rank's clock.
        """
        self._clock[push.rank] = self._clock.get(push.rank, self._slowest()) + 1
        self._waiting[push.rank] = push
        return max(self._clock.values()) - self._slowest()

    def free(self) -> list[Push]:
        """Return the pushes, by rank, of the waiting ranks that are within the bound."""
        slowest = self._slowest()
        waiting = [self._waiting[rank] for rank in sorted(self._waiting)]
        return [push for push in waiting if self._bound is None or self._clock[push.rank] - slowest <= self._bound]

    def go_on(self, push: Push) -> None:
        """Let the rank of *push* read; after its last push it has ended."""
        del self._waiting[push.rank]
        if push["last"]:
            del self._clock[push.rank]
            self._through.add(push.rank)

    def lost(self, loss: PeerLost) -> None:
        """Drop the clocks of the lost rank, which may have rejoined already, and of all absent ones."""
        self._through.discard(loss.rank)
        for rank in [rank for rank in self._clock if rank == loss.rank or rank not in (SERVER, *self._node.peers)]:
            del self._clock[rank]
            self._waiting.pop(rank, None)

    def _slowest(self) -> int:
        return min(self._clock.values(), default=0)

    def _may_come(self) -> bool:
        """Return whether any worker has a push left."""
        return any(rank != SERVER for rank in self._clock) or any(
            rank not in self._through for rank in self._node.peers
        )
