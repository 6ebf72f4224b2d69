"""What a send waits on when its order is noted: the same future, and a note of how it came to its end.

This file knows futures and notes. It must not know connections, which see as much of a future as they ask for.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from simcluster.replays.order import Kind

if TYPE_CHECKING:
    from backends.sockets.node.transport import SocketTransport


class Leaving:
    """Send *number*. While a frame of the program is put, only that frame's own end is taken; others' come next."""

    __slots__ = ("_future", "_node", "_number")

    def __init__(self, number: int, future: asyncio.Future[None], node: SocketTransport) -> None:
        self._number, self._future, self._node = number, future, node

    def done(self) -> bool:
        return self._future.done()

    def set_result(self, _: None) -> None:
        self._end(None)

    def set_exception(self, error: Exception) -> None:
        self._end(error)

    def _end(self, error: Exception | None) -> None:
        node, future = self._node, self._future
        notes = node.notes
        assert notes is not None
        if node.putting is not None and node.putting is not self:
            # In the midst of another one's callback: no place where an event can stand.
            node.later(self._end, error)
            return
        if future.done():
            return
        if node.putting is self:
            if error is not None:
                notes.answers.refused[self._number] = str(error)
        elif error is None:
            notes.note(Kind.LEFT, self._number)
        else:
            notes.gone(Kind.FAILED, self._number, str(error))
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
