"""The link to one incarnation of a peer, which survives connections that break.

docs/design/real-nodes.md has the protocol. A connection breaks if it is reset or times out. Then
the end that dialled first dials again at once, the other end after a moment, and each resends the
frames that the other has not taken. If a connection is closed, the link ends. It also ends if the
peer refuses to resume, or no longer listens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial

from torch import Tensor

from simcluster.errors import HandshakeRefused, ProtocolError, RunError
from simcluster_backends.common.event_loop import KEEPER
from simcluster_backends.sockets.net.connection import Connection, ignore
from simcluster_backends.sockets.net.send_queue import QueuedFrame, SendFuture, SendQueue
from simcluster_backends.sockets.net.shared_memory import SLOT_BYTES, SLOTS
from simcluster_backends.sockets.wire.frame import JOIN_BYTES, SHARED_BYTES, Frame, FrameKind, Landing
from simcluster_backends.sockets.wire.handshake import PeerIdentity
from simcluster_backends.sockets.wire.outgoing import OutgoingFrame
from simcluster_backends.sockets.wire.reader import FrameReader

ACKNOWLEDGED_BYTES, SHARED_ACKNOWLEDGED_BYTES = 128 * 1024, 512 * 1024
"""The bytes to receive before an acknowledgement is sent, over TCP and through shared memory.

An acknowledgement costs 40 bytes, for one large message or many small ones. A message in shared
memory stays there, so its sender need not wait for the acknowledgement.
"""

LEAST_KEPT_BYTES = 8 * ACKNOWLEDGED_BYTES
"""The lowest limit on the unacknowledged bytes that a sender keeps.

If it were below ACKNOWLEDGED_BYTES, the sender would wait forever.
"""

LENT_S = 0.02
"""The time that an unacknowledged frame may stay in the caller's memory after it has left.

After this time the frame is copied, so that the caller can continue.
"""

SECOND_S = 0.25
"""The head start of the end that dialled first, so that both ends do not dial at once."""

Dial = Callable[["PeerLink"], Awaitable[object]]
"""A function that dials the peer of a link again. It calls `resume`, or raises if it fails."""


class PeerLink:
    """A link to one incarnation of a peer: a connection, which is replaced if it breaks.

    Its owner sets `on_frame` and `on_lost`. A new connection resends unacknowledged frames, which
    the link keeps: at most *keeps_bytes*, or 1 MiB if that is more, plus one frame. With *shares*,
    it shares memory with a peer on this machine. *dial* is None at an end that does not know the
    other's address; *first* is set at the end that dialled first. A link that has been broken for
    *dead_s* is lost. Without *digests*, frames through shared memory have no `body_crc`.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        dead_s: float,
        keeps_bytes: int,
        dial: Dial | None,
        first: bool,
        digests: bool = True,
        shares: bool = True,
    ) -> None:
        self.peer: PeerIdentity = connection.peer
        self.on_frame: Callable[[Frame], None] = ignore
        self.on_lost: Callable[[str], None] = ignore
        self.resets = 0  # the number of connections that have broken
        self.queue = SendQueue(max(keeps_bytes, LEAST_KEPT_BYTES), self._lends)
        self._dead_s = dead_s
        self._dial = dial
        self._wait_s = 0.0 if first else SECOND_S
        self._connection: Connection | None = None
        self._reader = connection.reader
        self._reader.digests = digests
        self._moved = 0  # bytes on past connections
        self._unsaid = 0  # bytes received and not acknowledged
        self._paused = False
        self._shares = shares
        self._held = (False, False)
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._lost: str | None = None
        self._until: asyncio.TimerHandle | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._use(connection, None)

    @property
    def is_open(self) -> bool:
        """Whether frames may still reach the peer, perhaps over another connection."""
        connection = self._connection
        return self._lost is None and (connection is None or connection.is_open or connection.has_broken)

    @property
    def is_broken(self) -> bool:
        """Whether the link has no connection, but may get a new one."""
        return self._lost is None and self._connection is None

    @property
    def bytes_moved(self) -> int:
        return self._moved + (self._connection.bytes_moved if self._connection is not None else 0)

    @property
    def taken(self) -> int:
        """The number of frames taken from the peer."""
        return self._reader.taken

    def put(
        self, frame: OutgoingFrame, left: SendFuture | None = None, on_left: Callable[[], None] | None = None
    ) -> QueuedFrame:
        """Queue *frame* and write as much as possible now. Call *on_left* when *frame* has left."""
        sending = QueuedFrame(frame, left, on_left)
        if self.is_open:
            self.queue.put(sending)
            if self._connection is not None:
                if self._shares and frame.body_bytes >= SHARED_BYTES and self._connection.memory is not None:
                    self._connection.memory.offer()
                self._connection.pump()
        else:
            sending.end(ConnectionResetError(self._lost or "the connection was closed"))
        return sending

    def land(self, tag: str, place: Tensor) -> Landing | None:
        """Read the next message with *tag* into *place*: see FrameReader.land."""
        return self._reader.land(tag, place)

    def take_back(self, landing: Landing) -> None:
        self._reader.take_back(landing)

    def pause_reading(self) -> None:
        self._paused = True
        if self._connection is not None:
            self._connection.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        if self._connection is not None:
            self._connection.resume_reading()

    def hold(self, *, writing: bool, reading: bool) -> None:
        """Apply a fault: hold writing, reading, both or neither, until the next call."""
        self._held = writing, reading
        if self._connection is not None:
            self._connection.hold(writing=writing, reading=reading)

    def reset(self, reason: str) -> None:
        """Break the connection, if there is one; the two ends then make a new one."""
        if self._connection is not None:
            self._connection.reset(reason)

    def abort(self, reason: str) -> None:
        """End the link immediately, and its connection if there is one."""
        if self._connection is not None and not self._connection.has_broken:
            self._connection.drop(reason)
        elif self._lost is None:
            self._loop.call_soon(self._lose, reason, context=self._context.copy())

    async def end(self, grace_s: float = 1.0) -> None:
        """End the link; queued frames have *grace_s* to leave. A broken link ends at once."""
        if self._connection is not None:
            await self._connection.end(grace_s)
        self._lose("closed by this node")

    # a new connection

    def refusal(self, taken: int) -> str | None:
        """Return the reason for which a peer that claims to have *taken* frames may not resume.

        Return None if it may.
        """
        return "the connection has been given up" if not self.is_open else self.queue.problem_with(taken)

    def yields(self) -> int:
        """Drop the old connection, which the peer replaces; return the number of frames taken."""
        connection, self._connection = self._connection, None
        if connection is not None:
            # Forget it first: its end must not end the link.
            self._forget(connection)
            connection.reset("replaced by another connection of the same peer")
        return self.taken

    def resume(self, connection: Connection, taken: int) -> None:
        """Continue over *connection*, whose peer claims to have *taken* frames."""
        self.yields()
        if (problem := self.refusal(taken)) is not None:
            connection.on_lost = ignore
            connection.drop(problem)
            self._lose(problem)
            return
        if self._until is not None:
            self._until.cancel()
        if self._dialling is not None:
            self._dialling.cancel()
        self._until = self._dialling = None
        self._unsaid = 0
        self.queue.restart(taken)
        self._use(connection, self._reader)
        connection.pump()

    def _use(self, connection: Connection, previous: FrameReader | None) -> None:
        self._connection = connection
        connection.share(self.queue, previous)
        self._reader = connection.reader
        connection.on_frame, connection.on_lost = self._receive, partial(self._ended, connection)
        if self._paused:
            connection.pause_reading()
        if self._held != (False, False):
            connection.hold(writing=self._held[0], reading=self._held[1])

    def _receive(self, frame: Frame) -> None:
        if frame.kind is FrameKind.OFFER:
            if self._connection is not None and self._connection.memory is not None:
                self._connection.memory.accept(frame.header)
        elif frame.kind is FrameKind.ACK:
            self.queue.taken(frame.acknowledged)
            self._say(after_others=False)
        else:
            self.on_frame(frame)
            self._unsaid += frame.size_bytes
            enough, held = (
                (SHARED_ACKNOWLEDGED_BYTES, SLOTS * SLOT_BYTES) if frame.is_shared else (ACKNOWLEDGED_BYTES, JOIN_BYTES)
            )
            if self._unsaid >= enough:
                self._unsaid = 0
                self.queue.acknowledge(self._reader.taken)
                if frame.size_bytes > held:  # the sender may be waiting for this acknowledgement
                    self._say(after_others=False)
                else:
                    self._loop.call_soon(self._say, True, context=self._context)

    def _say(self, after_others: bool) -> None:
        """Write what is queued. With *after_others*, do that only in the loop's next turn.

        The program has just received a message, and may send a frame meanwhile: the acknowledgement
        then leaves in the same write.
        """
        if after_others:
            self._loop.call_soon(self._say, False, context=self._context)
        elif self._connection is not None:
            self._connection.pump()

    def _lends(self, sending: QueuedFrame) -> None:
        self._loop.call_later(LENT_S, self._no_longer_lends, sending)

    def _no_longer_lends(self, sending: QueuedFrame) -> None:
        if sending.left is not None and not sending.left.done():
            sending.frame.keep()
            sending.end()

    # the end of a connection

    def _forget(self, connection: Connection) -> None:
        connection.on_frame = connection.on_lost = ignore
        connection.queue = SendQueue()
        self._moved += connection.bytes_moved

    def _ended(self, connection: Connection, reason: str) -> None:
        self._forget(connection)
        self._connection = None
        if not connection.has_broken or self._lost is not None:
            self._lose(reason)
            return
        self.resets += 1
        context = self._context.copy()
        if self._until is None:
            late = f"{reason}, and no other connection within {self._dead_s:g} s"
            self._until = self._loop.call_later(self._dead_s, self._lose, late, context=context)
        if self._dial is not None:
            self._dialling = context.run(self._loop.create_task, self._dial_again(self._dial, reason))
            self._dialling.set_name(KEEPER)

    async def _dial_again(self, dial: Dial, reason: str) -> None:
        try:
            await asyncio.sleep(self._wait_s)
            await dial(self)
        except (RunError, HandshakeRefused, ProtocolError) as error:
            if self.is_broken:
                self._lose(f"{reason}, and then: {error}")

    def _lose(self, reason: str) -> None:
        """End the link for good: fail its queue, and notify its owner."""
        if self._lost is not None:
            return
        self._lost = reason
        if self._until is not None:
            self._until.cancel()
        if self._dialling is not None and self._dialling is not asyncio.current_task():
            self._dialling.cancel()
        self.queue.fail(reason)
        self.on_lost(reason)
