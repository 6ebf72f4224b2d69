"""One TCP connection: a handshake, then frames both ways, with backpressure both ways.

There is no writer task: `pump` writes chunks while the kernel accepts them, and continues in
`resume_writing`. The transport's own write buffer is kept empty (its high-water mark is 0), so a
frame has left when the kernel has its last byte. FrameReader receives incoming bytes in place.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import cast

from simcluster.errors import HandshakeRefused, ProtocolError
from simcluster_backends.sockets.net.raw_socket import end_writing, reset_at_close, send_at_once, write_now
from simcluster_backends.sockets.net.send_queue import QueuedFrame, SendFuture, SendQueue
from simcluster_backends.sockets.net.shared_memory import SharedMemory, has_one_address
from simcluster_backends.sockets.net.tls import ClosedUnread, in_words, names_in
from simcluster_backends.sockets.wire.frame import CHUNK_BYTES, Frame, FrameKind, OtherVersion
from simcluster_backends.sockets.wire.handshake import Handshake, PeerIdentity
from simcluster_backends.sockets.wire.outgoing import OutgoingFrame
from simcluster_backends.sockets.wire.reader import USUAL, FrameLimits, FrameReader

CLOSED = "the connection was closed by the peer"
HANDSHAKE_TIMEOUT_S = 5.0

ABORTED_S = 1.0
"""The longest wait for the event loop to report an aborted connection as closed."""

LAST_WORD_S = 1.0
"""The time that a refused peer has to receive the reason."""

PUMP_BYTES = 8 * CHUNK_BYTES
"""The bytes that one connection writes before the loop's other tasks get a turn."""

log = logging.getLogger("simcluster.sockets")


def ignore(news: Frame | str) -> None:
    """Do nothing. This replaces the callbacks of an owner that no longer listens."""


class Connection(asyncio.BufferedProtocol):
    """A connection that calls *on_open* when its handshake is done, or *on_fail* with an error.

    *on_open* sets two callbacks: `on_frame` is called with each frame, and `on_lost` with the
    reason for which the connection ended.
    """

    def __init__(
        self,
        handshake: Handshake,
        *,
        on_open: Callable[[Connection], None],
        on_fail: Callable[[Connection, Exception], None],
        limits: FrameLimits = USUAL,
    ) -> None:
        self.handshake = handshake
        self.on_frame: Callable[[Frame], None] = ignore
        self.on_lost: Callable[[str], None] = ignore
        self.bytes_moved = 0  # in both directions, counted chunk by chunk: it shows progress
        self.reader = FrameReader(limits)
        self.queue = SendQueue()
        self._on_open = on_open
        self._on_fail = on_fail
        self._reads = True
        self._paused = self._reading_paused = self._reading_held = self._writing_held = False
        self._failed = self._closing = self._encrypted = False
        self._reason = ""
        self._descriptor = -1
        self.has_broken = False  # whether it broke, instead of being closed by either end
        self.fails_queue = True  # whether its loss fails the queue, which a PeerLink may own
        self.memory: SharedMemory | None = None  # set if the peer may be on this machine
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._deadline: asyncio.TimerHandle | None = None

    # called by the owner

    @property
    def peer(self) -> PeerIdentity:
        """The identity of the other end, which is known once *on_open* is called."""
        assert self.handshake.peer is not None
        return self.handshake.peer

    @property
    def is_open(self) -> bool:
        return self.handshake.done and not self._closing

    @property
    def is_made(self) -> bool:
        """Whether the TCP connection, and with TLS the TLS handshake, has ever been completed."""
        return self._transport is not None

    @property
    def address(self) -> str:
        """The other end as "host:port", for logs."""
        name = self._transport.get_extra_info("peername") if self._transport else None
        return f"{name[0]}:{name[1]}" if name else "an unknown address"

    def put(
        self, frame: OutgoingFrame, left: SendFuture | None = None, on_left: Callable[[], None] | None = None
    ) -> QueuedFrame:
        """Queue *frame* and write as much as possible now. Call *on_left* when *frame* has left."""
        sending = QueuedFrame(frame, left, on_left)
        if self._closing:
            sending.end(ConnectionResetError(self._reason))
        else:
            self.queue.put(sending)
            self.pump()
        return sending

    def pause_reading(self) -> None:
        self._reading_paused = True
        self._read_or_not()

    def resume_reading(self) -> None:
        self._reading_paused = False
        self._read_or_not()

    def hold(self, *, writing: bool, reading: bool) -> None:
        """Apply a fault: hold writing, reading, both or neither, until the next call."""
        self._writing_held, self._reading_held = writing, reading
        self._read_or_not()
        self.pump()

    def close(self, reason: str = "closed by this node") -> None:
        """Write as much of the queue as the kernel accepts now, and close the connection."""
        self._reason = self._reason or reason
        self.pump()
        self._closing = True
        if self._transport is not None:
            self._outside(self._transport.close)

    async def end(self, grace_s: float = 1.0) -> None:
        """Close the connection, and wait until it is closed.

        Abort it if the queued frames have not left after *grace_s*.
        """
        self.close()
        if self._transport is not None:
            await asyncio.wait([self._closed], timeout=grace_s)
            self._transport.abort()
            await asyncio.wait([self._closed], timeout=ABORTED_S)

    def abort(self, reason: str) -> None:
        """End the connection immediately."""
        self._reason = self._reason or reason
        self._closing = True
        if self._transport is not None:
            self._outside(self._transport.abort)

    def drop(self, reason: str) -> None:
        """End the connection immediately, but so that the peer sees a close, not a reset.

        Without the shutdown of writing, the kernel would send a reset if data is still unread.
        """
        self._if_open(end_writing)
        self.abort(reason)

    def reset(self, reason: str) -> None:
        """Break the connection by a TCP reset, as a network may do."""
        self.has_broken = self.has_broken or not self._closing
        self._if_open(reset_at_close)
        self.abort(reason)

    def share(self, queue: SendQueue, previous: FrameReader | None) -> None:
        """Send from *queue*, which outlives this connection; read from where *previous* stopped.

        If the peer may be on this machine, prepare to share memory with it.
        """
        # The end of the handshake may still wait in the old queue: it must leave first.
        queue.waits.extendleft(reversed(self.queue.waits))
        self.queue, self.fails_queue = queue, False
        self.reader.open(previous)
        if self._transport is not None and not self._encrypted and has_one_address(self._transport):
            self.memory = SharedMemory(self._loop, queue, self.reader, self.pump)

    # called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        if self._closing:
            self._transport.abort()
            return
        self._encrypted = transport.get_extra_info("ssl_object") is not None
        if self._encrypted:
            self.handshake.certified = names_in(transport.get_extra_info("peercert"))
        self._descriptor = transport.get_extra_info("socket").fileno()
        # A plain transport pauses above this mark, a TLS transport at the mark.
        self._transport.set_write_buffer_limits(high=1 if self._encrypted else 0, low=0)
        send_at_once(transport)
        late = HandshakeRefused(f"no handshake within {HANDSHAKE_TIMEOUT_S:g} s")
        self._deadline = self._loop.call_later(HANDSHAKE_TIMEOUT_S, self._fail, late)
        self._send_handshake()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self._closing:
            return
        self.bytes_moved += nbytes
        try:
            self.reader.received(nbytes)
            while not self._closing and (frame := self.reader.next_frame()) is not None:
                self._accept(frame)
        except OtherVersion as error:
            self._fail(error if self.handshake.done else self.handshake.refuse(str(error)))
        except (ProtocolError, HandshakeRefused) as error:
            self._fail(error)

    def eof_received(self) -> None:
        torn = "" if self.reader.between_frames else " in the middle of a frame"
        self.abort(f"{CLOSED}{torn}")

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.pump()

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(exc, OSError) and not isinstance(exc, (ssl.SSLError, BrokenPipeError)):
            self.has_broken = self.has_broken or not self._closing
        self._closing = True
        if isinstance(exc, ssl.SSLError):
            self._reason = self._reason or in_words(exc)
        if isinstance(exc, BrokenPipeError):  # a write failed before the peer's end had been read
            self._reason = self._reason or CLOSED
        self._reason = self._reason or (f"{type(exc).__name__}: {exc}" if exc else "the connection was closed")
        if self._deadline is not None:
            self._deadline.cancel()
        if not self._closed.done():
            self._closed.set_result(None)
        if self.memory is not None:
            self.memory.close()
        if self.fails_queue:
            self.queue.fail(self._reason)
        if self.handshake.done:
            self.on_lost(self._reason)
        elif not self._failed:
            self._failed = True
            unread = ClosedUnread if self._encrypted else ConnectionResetError
            self._on_fail(self, (HandshakeRefused if isinstance(exc, ssl.SSLError) else unread)(self._reason))

    def _if_open(self, change: Callable[[int], None]) -> None:
        """Apply *change* to the socket's descriptor, if it is still open."""
        if self._transport is not None and not self._closed.done():
            change(self._descriptor)

    def _outside(self, ending: Callable[[], None]) -> None:
        """Call *ending*, a method of the transport; with TLS, only after its current callback."""
        if self._encrypted:
            self._loop.call_soon(ending)
        else:
            ending()

    def _accept(self, frame: Frame) -> None:
        if self.handshake.done:
            self.on_frame(frame)
            return
        done = self.handshake.receive(frame.header)
        self._send_handshake()
        if done:
            self.reader.open()
            assert self._deadline is not None
            self._deadline.cancel()
            self._on_open(self)

    def _send_handshake(self) -> None:
        for header in self.handshake.to_send():
            self.put(OutgoingFrame(FrameKind.HANDSHAKE, header))

    def _fail(self, error: Exception) -> None:
        """Send the peer any refusal, and drop it: it broke the protocol or may not join."""
        if self._failed or self._closing:
            return
        self._failed = True
        if self.handshake.done:
            log.warning("dropped %s: %s", self.address, error)
            self.drop(str(error))
        else:
            self._send_handshake()
            self.close(str(error))
            if self._transport is not None:
                # A peer that does not read the refusal, or does not answer TLS's end, would linger
                # for 30 s.
                self._loop.call_later(LAST_WORD_S, self._transport.abort)
            self._on_fail(self, error)

    def _read_or_not(self) -> None:
        """Pause or resume reading: unread data fills the kernel's buffers, and then the sender waits."""
        reads = not self._reading_paused and not self._reading_held
        if reads == self._reads or self._transport is None or self._transport.is_closing():
            return
        self._reads = reads
        (self._transport.resume_reading if reads else self._transport.pause_reading)()

    def _write(self, transport: asyncio.Transport, chunk: bytes | bytearray | memoryview) -> None:
        """Write *chunk*: the kernel copies what it accepts now, the transport copies the rest."""
        if not self._encrypted:
            count, broke = write_now(self._descriptor, chunk)
            if count == len(chunk):
                return
            self.has_broken = self.has_broken or broke
            chunk = memoryview(chunk)[count:]
        transport.write(bytes(chunk))

    def pump(self) -> None:
        """Write chunks until the kernel accepts no more or other tasks need a turn."""
        transport = self._transport
        queue = self.queue
        budget = PUMP_BYTES
        if transport is None or self._writing_held:
            return
        while queue.is_ready and not self._paused and not transport.is_closing():
            chunk = queue.advance()
            if not chunk:
                continue
            self._write(transport, chunk)
            self.bytes_moved += len(chunk)
            budget -= len(chunk)
            if budget <= 0:
                self._loop.call_soon(self.pump)
                return
        if queue.is_starved and self.memory is not None:
            self.memory.listen()
