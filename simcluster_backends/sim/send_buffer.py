"""The send buffers of a node's operating system: a send into one returns before the message has left."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simcluster_backends.sim.outgoing import Outgoing


class SendBuffer:
    """Room for *size_bytes* of messages to each peer. A sender does not wait for a message that fits."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._held_B: dict[int, int] = {}  # by the peer's rank
        self._leaving: dict[asyncio.Future[None], None] = {}

    def take(self, to: int, outgoing: Outgoing) -> bool:
        """Hold *outgoing* until it has left or an end is gone; return False if there is no room."""
        held_B = self._held_B.get(to, 0) + outgoing.body_B
        if held_B > self._size_bytes or outgoing.injected.done():
            return False
        self._held_B[to] = held_B
        outgoing.is_held = True
        self._leaving[outgoing.injected] = None
        outgoing.injected.add_done_callback(partial(self._release, to, outgoing.body_B))
        return True

    async def flush(self) -> None:
        """Wait until the buffer is empty: the system still sends what a finished process left in it."""
        while self._leaving:
            await asyncio.wait(list(self._leaving))

    def _release(self, to: int, body_B: int, injected: asyncio.Future[None]) -> None:
        self._held_B[to] -= body_B
        del self._leaving[injected]
