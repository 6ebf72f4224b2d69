"""The outgoing messages of a node, and the send buffers of its operating system."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from simcluster.payload import Message
    from simcluster_backends.common.inbox import Waiting
    from simcluster_backends.sim.network.flows import Flow


class SimSend(msgspec.Struct, eq=False):
    """An outgoing message: *injected* is done when its last byte has left, at *left_s*.

    *take_back* is the `withdraw` of the stream. *partner* is the receive of the same exchange,
    which fails if the send fails. If a send buffer holds the message (*is_held*), its sender waits
    only for its own overhead; then *on_prepared* is called.
    """

    message: Message
    size_bytes: int
    body_B: int
    injected: asyncio.Future[None]
    take_back: Callable[[SimSend], None]
    flow: Flow | None = None
    partner: Waiting | None = None
    left_s: float = 0.0
    is_held: bool = False
    on_prepared: Callable[[], None] | None = None

    def withdraw(self) -> None:
        self.take_back(self)


class BufferedSend:
    """A message in a send buffer: for its sender, *injected* is done after the sender's overhead.

    The message cannot be withdrawn, because the operating system has it already.
    """

    def __init__(self, outgoing: SimSend, now: Callable[[], float]) -> None:
        self.size_bytes = outgoing.size_bytes
        self.left_s = now()
        self.injected: asyncio.Future[None] = asyncio.Future(loop=outgoing.injected.get_loop())
        self.partner: Waiting | None = None
        self._now = now
        outgoing.on_prepared = self._prepared
        # If an end of the stream is gone first, *on_prepared* is never called.
        outgoing.injected.add_done_callback(lambda _: self._prepared())

    def _prepared(self) -> None:
        if not self.injected.done():
            self.left_s = self._now()
            self.injected.set_result(None)

    def withdraw(self) -> None:
        """Do nothing: the message stays in the send buffer."""


class SendBuffer:
    """A send buffer of *size_bytes* for each peer. If a message fits, its send returns at once.

    The operating system sends the contents even after the process has ended.
    """

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._held_B: dict[int, int] = {}  # rank of a peer -> bytes held for it
        self._leaving: dict[asyncio.Future[None], None] = {}

    def take(self, to: int, outgoing: SimSend) -> bool:
        """Hold *outgoing* until it leaves or an end of its stream is gone.

        Return False if it has already left or does not fit."""
        held_B = self._held_B.get(to, 0) + outgoing.body_B
        if held_B > self._size_bytes or outgoing.injected.done():
            return False
        self._held_B[to] = held_B
        outgoing.is_held = True
        self._leaving[outgoing.injected] = None
        outgoing.injected.add_done_callback(partial(self._release, to, outgoing.body_B))
        return True

    async def flush(self) -> None:
        """Wait until the buffer is empty."""
        while self._leaving:
            await asyncio.wait(list(self._leaving))

    def _release(self, to: int, body_B: int, injected: asyncio.Future[None]) -> None:
        self._held_B[to] -= body_B
        del self._leaving[injected]
