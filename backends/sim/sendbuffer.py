"""What a node's operating system takes off an algorithm's hands before it has left: the buffers of its sockets.

This file knows bytes, peers and futures. It must not know streams or rates: when a message leaves is settled elsewhere.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backends.sim.stream import Outgoing


class SendBuffer:
    """Room for *size_bytes* of messages to each peer. Whose message finds room does not wait until it has left."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._held_B: dict[int, int] = {}  # by the peer's rank
        self._leaving: dict[asyncio.Future[None], None] = {}

    def take(self, to: int, outgoing: Outgoing) -> bool:
        """Whether *outgoing* has room; if so, it is held until it has left, or an end is gone."""
        held_B = self._held_B.get(to, 0) + outgoing.body_B
        if held_B > self._size_bytes or outgoing.injected.done():
            return False
        self._held_B[to] = held_B
        outgoing.is_held = True
        self._leaving[outgoing.injected] = None
        outgoing.injected.add_done_callback(partial(self._release, to, outgoing.body_B))
        return True

    async def flush(self) -> None:
        """Returns when nothing is held any more: what a process leaves behind, the system still sends."""
        while self._leaving:
            await asyncio.wait(list(self._leaving))

    def _release(self, to: int, body_B: int, injected: asyncio.Future[None]) -> None:
        self._held_B[to] -= body_B
        del self._leaving[injected]
