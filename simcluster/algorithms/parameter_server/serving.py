"""A server's side of asynchronous rounds: the next push of any worker, while the server trains."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from simcluster.algorithms.parameter_server.push import Push
from simcluster.algorithms.parameter_server.server import SERVER
from simcluster.errors import ABSENT, ENDED, PeerLost
from simcluster.overlays.hearing import heard
from simcluster.payload import Message
from simcluster.transport import ANY, Transport
from simcluster.workloads import Replica

PUSH: Final = "push"


class Listener:
    """Receives pushes as long as any are *expected*, or may be again.

    Without a single worker a server that is *busy*, by default with its own training, continues, and looks
    after each step whether a worker has come. A server that only serves fails with its workers, unless one of them
    `is_through`.
    """

    def __init__(
        self, node: Transport, expected: Callable[[], bool], busy: Callable[[], bool] | None = None, tag: str = PUSH
    ) -> None:
        self._node, self._expected, self._tag = node, expected, tag
        self._busy = busy or self._is_training
        self._looked = asyncio.Event()
        self._own: asyncio.Task[None] | None = None
        self._heard = False
        self.is_through = False  # some worker has pushed all that it had to

    def train(self, tasks: asyncio.TaskGroup, training: Coroutine[Any, Any, None]) -> None:
        """Begin the server's own *training*."""
        self._own = tasks.create_task(training)
        self._own.add_done_callback(lambda _: self.look())

    def look(self) -> None:
        """Look for workers: one that has come (back) is served from now on. Call it after each step."""
        self._looked.set()

    async def looked(self) -> None:
        """Wait for the next `look`."""
        self._looked.clear()
        await self._looked.wait()

    def came(self, push: Push) -> None:
        """Note that *push* has come."""

    def lost(self, loss: PeerLost) -> None:
        """Note that *loss* was raised."""

    def gone(self, rank: int) -> None:
        """Note that *rank* cannot be reached."""

    async def next(self) -> Message | PeerLost | None:
        """The next push, or the next loss; None when no push is to come and the server is not busy.

        Raises PeerLost, with the reason ENDED, if the workers ended before they could push anything to this server: it
        came back too late. Raises the loss of a worker if this server only serves, and has none left to serve.
        """
        found: Message | PeerLost | None = None
        while found is None:
            if not self._expected() and self._busy():
                await self.looked()
                found = None if self._expected() else await heard(self._node, ANY, self._tag)
                if isinstance(found, PeerLost):
                    await self._check_in_time()
            elif self._expected() or await self._must_wait():
                try:
                    found = await self._node.recv(ANY, self._tag)
                except PeerLost as lost:
                    await self._check_in_time()
                    found = lost
            else:
                return None
        if isinstance(found, Message):
            self._heard = True
            self.is_through = self.is_through or bool(found.payload.values.get("last"))
        return found

    def _is_training(self) -> bool:
        return self._own is not None and not self._own.done()

    async def _must_wait(self) -> bool:
        """Return whether a server that only serves has to wait for a worker to join. Raise PeerLost if all are lost."""
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


class Expected(Listener):
    """Receives the pushes that *ranks* have to come, one per *batches*; late or again, all of a worker."""

    def __init__(self, node: Transport, replica: Replica, ranks: Iterable[int], batches: int = 1) -> None:
        super().__init__(node, lambda: bool(self._workers()))
        self._each = -(-replica.steps // batches)
        self._left = {rank: self._each - -(-replica.done_by(rank) // batches) for rank in ranks}

    def left(self) -> set[int]:
        """Return the ranks that are there, and have not pushed all."""
        return {rank for rank, left in self._left.items() if left and rank in (SERVER, *self._node.peers)}

    def came(self, push: Push) -> None:
        self._left[push.rank] = self._left.get(push.rank, self._each) - 1
        self.is_through = self.is_through or not self._left[push.rank]

    def lost(self, loss: PeerLost) -> None:
        """*loss* was raised, after all that had come. The end of a worker that ended well is not raised."""
        there = (SERVER, *self._node.peers)
        self._left = {rank: left for rank, left in self._left.items() if rank in there and rank != loss.rank}

    def gone(self, rank: int) -> None:
        """A reply to *rank* has failed: it may be back before its loss is raised."""
        self._left.pop(rank, None)

    def _workers(self) -> set[int]:
        """Return the workers that have pushes to come, or have just come themselves."""
        open_ = {rank for rank, left in self._left.items() if left and rank != SERVER}
        return open_ | {rank for rank in self._node.peers if rank not in self._left}


class Rounds(Listener):
    """Receives pushes of workers that say of each whether it is their `last`, until all have said so or are lost."""

    def __init__(self, node: Transport, replica: Replica) -> None:
        workers = set(range(node.size)) - {node.rank}
        self._training = {rank for rank in workers if replica.done_by(rank) < replica.steps}
        self._through = workers - self._training
        super().__init__(node, self._may_come)

    def _may_come(self) -> bool:
        return bool(self._training) or any(rank not in self._through for rank in self._node.peers)

    def came(self, push: Push) -> None:
        """A worker that comes back begins from the beginning, and is in training again."""
        if push.rank != self._node.rank:
            (self._training.discard if push["last"] else self._training.add)(push.rank)
            (self._through.add if push["last"] else self._through.discard)(push.rank)

    def lost(self, loss: PeerLost) -> None:
        """All that came is taken; a worker that is gone, even one that ended well, pushes no more."""
        self._training.intersection_update(self._node.peers)
        self._through.discard(loss.rank)
