"""A message on its way out of a node, and the send buffers of its operating system."""

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
    """A message on its way out: *injected* is done when its last byte has left, at *left_s*. It may be of star.py.

    *take_back* is its stream's `withdraw`. *partner* is the receiver of the same exchange, which fails with it. For a
    message that *is_held* by a send buffer, a sender waits only for its own overhead: *on_prepared* is called then.
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
    """A message in a send buffer, as its sender sees it: *injected* is done when its overhead has passed.

    It cannot be withdrawn: the operating system has it.
    """

    def __init__(self, outgoing: SimSend, now: Callable[[], float]) -> None:
        self.size_bytes, self.left_s = outgoing.size_bytes, now()
        self.injected: asyncio.Future[None] = asyncio.Future(loop=outgoing.injected.get_loop())
        self.partner: Waiting | None = None
        self._now = now
        outgoing.on_prepared = self._prepared
        outgoing.injected.add_done_callback(lambda _: self._prepared())  # also if an end is gone before

    def _prepared(self) -> None:
        if not self.injected.done():
            self.left_s = self._now()
            self.injected.set_result(None)

    def withdraw(self) -> None:
        """Leave the message where it is."""


class SendBuffer:
    """Room for *size_bytes* of messages to each peer. If a message fits, its send does not wait until it has left.

    The system still sends what a finished process left in it.
    """

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._held_B: dict[int, int] = {}  # by the peer's rank
        self._leaving: dict[asyncio.Future[None], None] = {}

    def take(self, to: int, outgoing: SimSend) -> bool:
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
        """Wait until the buffer is empty."""
        while self._leaving:
            await asyncio.wait(list(self._leaving))

    def _release(self, to: int, body_B: int, injected: asyncio.Future[None]) -> None:
        self._held_B[to] -= body_B
        del self._leaving[injected]
