"""The queue of outgoing frames of one connection, in order of `put`, with their sequence numbers.

A queue that outlives its connection keeps each frame until the peer acknowledges it. `restart`
sends all unacknowledged frames again on the next connection. The queue does no I/O: its owner takes
chunks and writes them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from simcluster.errors import ProtocolError
from simcluster_backends.sockets.wire.frame import LENGTH, FrameKind
from simcluster_backends.sockets.wire.outgoing import Chunk, OutgoingFrame, Slots, acknowledgement, offer


class SendFuture(Protocol):
    """The part of a future's interface that a frame needs to report that it has left."""

    def done(self) -> bool: ...

    def set_result(self, result: None, /) -> None: ...

    def set_exception(self, exception: Exception, /) -> None: ...


@dataclass(slots=True, eq=False)
class QueuedFrame:
    """A queued frame. *left* is done when the frame's last byte has left this process.

    If the connection is lost first, *left* fails with a ConnectionError. If the queue may resend
    the frame from the caller's memory, *left* is done only when the queue no longer needs that
    memory. *seq* is the number of the frame's first part, once it has begun to leave. *rest* is the
    number of bytes that have not left.
    """

    frame: OutgoingFrame
    left: SendFuture | None
    on_left: Callable[[], None] | None
    chunks: Iterator[Chunk] | None = None
    seq: int | None = None
    rest: int = 0
    has_left: bool = False

    def leaves(self) -> None:
        """Note that the last byte has left, for the first time or again."""
        if not self.has_left:
            self.has_left = True
            if self.on_left is not None:
                self.on_left()

    def end(self, error: Exception | None = None) -> None:
        """End the wait for the frame, with *error* unless the frame has already left."""
        if error is None:
            self.leaves()
        if self.left is not None and not self.left.done():
            if error is None or self.has_left:
                self.left.set_result(None)
            else:
                self.left.set_exception(error)


class SendQueue:
    """The queue of a connection.

    *bytes_sent* counts the bytes of frames that have left completely, and counts resent frames
    again. With *keeps_bytes*, the queue keeps frames until they are acknowledged. While it keeps at
    least that many bytes, no further frame begins to leave. *on_lent* is called with each frame
    that has left but is still in the caller's memory.
    """

    def __init__(
        self, keeps_bytes: int | None = None, on_lent: Callable[[QueuedFrame], None] = lambda sending: None
    ) -> None:
        self.bytes_sent = 0
        self.waits: deque[QueuedFrame] = deque()
        self.kept: deque[QueuedFrame] = deque()  # frames that have left and are not acknowledged
        self.kept_bytes = 0
        self.acknowledged = 0  # the number of frames that the peer has taken
        self.slots: Slots | None = None  # shared memory, once the peer has accepted it
        self._keeps_bytes = keeps_bytes
        self._on_lent = on_lent
        self._seq = self._shaken = 0
        self._says: int | None = None  # the number of taken frames to acknowledge next
        self._offers = b""
        self.is_starved = False  # whether the first frame waits for a free slot

    @property
    def is_ready(self) -> bool:
        """Whether `advance` would make progress."""
        if self.is_starved:
            return self.slots is not None and self.slots.has_room()
        if not self.waits:
            return self._says is not None or bool(self._offers)
        if self._keeps_bytes is None or self.kept_bytes < self._keeps_bytes:
            return True
        first = self.waits[0]
        return first.seq is not None or first.chunks is not None or self._says is not None or bool(self._offers)

    def put(self, sending: QueuedFrame) -> None:
        if sending.frame.kind is FrameKind.HANDSHAKE:  # these frames have numbers of their own
            sending.chunks, sending.rest = sending.frame.chunks(self._shaken), sending.frame.wire_bytes
            self._shaken += 1
        self.waits.append(sending)

    def acknowledge(self, taken: int) -> None:
        """Send an acknowledgement of *taken* frames before the next frame begins to leave."""
        self._says = taken

    def offer(self, content: bytes) -> None:
        """Offer shared memory, described by *content*, before the next frame begins to leave."""
        self._offers = offer(content)

    def advance(self) -> Chunk | None:
        """Return the next chunk to write. Call it only if `is_ready`.

        Return None after the last chunk of a frame, which has then left, and b"" if the frame waits
        for a free slot.
        """
        if not self.waits or self.waits[0].chunks is None:
            if self._says is not None:
                chunk, self._says = acknowledgement(self._says), None
                self.bytes_sent += len(chunk)
                return chunk
            if self._offers:
                chunk, self._offers = self._offers, b""
                return chunk
        sending = self.waits[0]
        if sending.chunks is None:
            if sending.seq is None:
                sending.seq = self._seq
                self._seq += sending.frame.count
            sending.chunks, sending.rest = sending.frame.chunks(sending.seq, self.slots), sending.frame.wire_bytes
        filled_bytes = self.slots.filled_bytes if self.slots is not None else 0
        next_chunk = next(sending.chunks, None)
        self.is_starved = next_chunk is not None and not next_chunk
        if next_chunk is None:
            self.waits.popleft()
            self._finish(sending)
        elif self.slots is not None and self.slots.filled_bytes != filled_bytes:
            # The chunk holds only the length of a slot's content; count the content itself.
            sending.rest -= self.slots.filled_bytes - filled_bytes + len(next_chunk) - LENGTH.size
        else:
            sending.rest -= len(next_chunk)
        return next_chunk

    def withdraw(self, sending: QueuedFrame) -> bool:
        """Cancel a send; return True if it has not begun, and is dropped.

        Otherwise it will be finished, with a copy of its body.
        """
        unbegun = sending.seq is None and sending in self.waits
        if unbegun:
            self.waits.remove(sending)
        else:
            sending.frame.keep()
        return unbegun

    def fail(self, reason: str) -> None:
        """Fail all queued and kept frames for *reason*: the connection is lost."""
        waiting = [*self.kept, *self.waits]
        self.waits = deque()
        self.kept = deque()
        self.kept_bytes = 0
        for sending in waiting:
            sending.end(ConnectionResetError(reason))

    # only with *keeps_bytes*

    def taken(self, number: int) -> None:
        """Note that the peer has taken *number* frames. Raise ProtocolError if that is impossible."""
        if (problem := self.problem_with(number)) is not None:
            raise ProtocolError(problem)
        while self.acknowledged < number:
            if self.kept:
                sending = self.kept.popleft()
                self.kept_bytes -= sending.frame.wire_bytes
            else:  # its last chunk has left, but `advance` has not been called since
                sending = self.waits.popleft()
                self.bytes_sent += sending.frame.wire_bytes
            assert sending.seq is not None, "it has left"
            self.acknowledged = sending.seq + sending.frame.count
            sending.frame.forget()
            sending.end()

    def problem_with(self, number: int) -> str | None:
        """Return why the peer cannot have taken *number* frames, or None if it can."""
        if number == self.acknowledged:
            return None
        for sending in (*self.kept, *([self.waits[0]] if self.waits and self.waits[0].chunks is not None else [])):
            if sending.seq is not None and not sending.rest and sending.seq + sending.frame.count == number:
                return None
        return f"the peer claims to have taken {number} frames; acknowledged are {self.acknowledged}, sent {self._seq}"

    def restart(self, number: int) -> None:
        """Resend everything after the first *number* frames, which the peer has taken."""
        self.taken(number)
        self.waits = deque(s for s in (*self.kept, *self.waits) if s.frame.kind is not FrameKind.HANDSHAKE)
        self.kept = deque()
        self.kept_bytes = 0
        self._says = None
        self.slots = None
        self._offers = b""
        self.is_starved = False
        for sending in self.waits:
            sending.chunks = None  # encode again from the start, but with the same *seq*

    def _finish(self, sending: QueuedFrame) -> None:
        self.bytes_sent += sending.frame.wire_bytes
        if self._keeps_bytes is None or sending.seq is None:
            sending.end()
            return
        self.kept.append(sending)
        self.kept_bytes += sending.frame.wire_bytes
        sending.leaves()
        if sending.frame.kept:
            sending.end()
        else:
            self._on_lent(sending)
