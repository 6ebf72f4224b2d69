"""A server's side of asynchronous rounds: the next push of any worker, while the server trains beside it.

This file knows which workers are there, which have ended, and a server's own training. It must not know what is pushed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from simcluster.errors import ENDED, PeerLost
from simcluster.payload import Message
from simcluster.transport import ANY, Transport

PUSH = "push"


class Listener:
    """Receives pushes as long as any are *expected*, or may be again.

    Without a single worker a server goes on with its own training, and looks after each step whether one has come.
    """

    def __init__(self, node: Transport, expected: Callable[[], bool]) -> None:
        self._node, self._expected = node, expected
        self._looked = asyncio.Event()
        self._own: asyncio.Task[None] | None = None
        self._heard = False

    def train(self, tasks: asyncio.TaskGroup, training: Coroutine[Any, Any, None]) -> None:
        """Begins the server's own *training*."""
        self._own = tasks.create_task(training)
        self._own.add_done_callback(lambda _: self._looked.set())

    def look(self) -> None:
        """Look for workers: one that has come (back) is served from now on. Call it after each step."""
        self._looked.set()

    async def next(self) -> Message | PeerLost | None:
        """The next push, or the next loss; None when no push is to come and the server's own training is over.

        Raises PeerLost, with the reason ENDED, if the workers ended before they could push anything to this server: it
        came back too late.
        """
        while True:
            if self._expected():
                try:
                    push = await self._node.recv(ANY, PUSH)
                except PeerLost as lost:
                    await self._check_in_time()
                    return lost
                self._heard = True
                return push
            if self._own is None or self._own.done():
                return None
            await self.looked()

    async def looked(self) -> None:
        """Wait for the next `look`."""
        self._looked.clear()
        await self._looked.wait()

    async def _check_in_time(self) -> None:
        if self._heard or self._node.peers:
            return
        for rank in range(self._node.size):
            if rank != self._node.rank:
                try:
                    await self._node.recv(rank, PUSH)
                except PeerLost as lost:
                    if lost.reason == ENDED:
                        raise


class Rounds(Listener):
    """Of workers that say of a push whether it is their `last`. *training* are those that have one to come."""

    def __init__(self, node: Transport, training: set[int]) -> None:
        super().__init__(node, lambda: bool(training) or any(rank not in self._through for rank in node.peers))
        self._training = training
        self._through = {rank for rank in range(node.size) if rank != node.rank and rank not in training}

    async def next_push(self) -> Message | None:
        """The next push, in order of arrival; None when no worker is left to send one.

        A worker that comes back begins from the beginning, and is in training again.
        """
        while (push := await self.next()) is not None:
            if isinstance(push, PeerLost):
                # All that came is taken; a worker that is gone, even one that ended well, pushes no more.
                self._training.intersection_update(self._node.peers)
                self._through.discard(push.rank)
                continue
            (self._training.discard if push["last"] else self._training.add)(push.source)
            (self._through.add if push["last"] else self._through.discard)(push.source)
            return push
        return None
