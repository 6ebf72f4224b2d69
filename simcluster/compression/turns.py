"""A gate that tasks pass one at a time, in the order in which they took a number."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager


class Turns:
    """Whatever a stream remembers must be used in the stream's order, also where several of its steps are under way and
    their messages come in any order.
    """

    def __init__(self) -> None:
        self._last: asyncio.Event | None = None

    def take(self) -> AbstractAsyncContextManager[None]:
        """The next turn: entering it waits until the one before it has been left."""
        before, self._last = self._last, asyncio.Event()
        return _turn(before, self._last)


@asynccontextmanager
async def _turn(before: asyncio.Event | None, over: asyncio.Event) -> AsyncIterator[None]:
    if before is not None:
        await before.wait()
    try:
        yield
    finally:
        over.set()
