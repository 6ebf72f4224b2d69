"""The frames that wait to leave on one connection, in order of `put`, and their sequence numbers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from simcluster_backends.sockets.wire.frame import Outgoing


class Left(Protocol):
    """The part of a future's interface needed to wait for a frame to leave."""

    def done(self) -> bool: ...

    def set_result(self, result: None, /) -> None: ...

    def set_exception(self, exception: Exception, /) -> None: ...


@dataclass(slots=True, eq=False)
class Sending:
    """A queued frame. *left* is done when its last byte has left this process, or fails with ConnectionError."""

    frame: Outgoing
    left: Left | None
    on_left: Callable[[], None] | None
    chunks: Iterator[bytes | bytearray | memoryview] | None = None

    def end(self, error: Exception | None = None) -> None:
        if error is None and self.on_left is not None:
            self.on_left()
        if self.left is not None and not self.left.done():
            if error is None:
                self.left.set_result(None)
            else:
                self.left.set_exception(error)


class SendQueue:
    """A connection's queue. *bytes_sent* counts frames that have left completely."""

    def __init__(self) -> None:
        self.bytes_sent = 0
        self.waits: deque[Sending] = deque()
        self._seq = 0

    def advance(self) -> bytes | bytearray | memoryview | None:
        """Return the next chunk of the first frame; None after its last, when its sending ends."""
        sending = self.waits[0]
        if sending.chunks is None:
            sending.chunks = sending.frame.chunks(self._seq)
            self._seq += sending.frame.count
        chunk = next(sending.chunks, None)
        if chunk is None:
            self.waits.popleft()
            self.bytes_sent += sending.frame.wire_bytes
            sending.end()
        return chunk

    def withdraw(self, sending: Sending) -> bool:
        """Cancel a send: drop it if it has not begun (True); else it is finished (False)."""
        unbegun = sending.chunks is None and sending in self.waits
        if unbegun:
            self.waits.remove(sending)
        else:
            sending.frame.keep()
        return unbegun

    def fail(self, reason: str) -> None:
        """Fail all messages: the connection is lost."""
        waiting, self.waits = self.waits, deque()
        for sending in waiting:
            sending.end(ConnectionResetError(reason))
