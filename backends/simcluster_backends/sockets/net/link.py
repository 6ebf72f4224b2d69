"""The frames to and from one incarnation of a peer, over one connection after another if connections break.

docs/design/real-nodes.md has the protocol. A connection that has been reset, or has timed out, has broken: the end that
dialled first dials again at once, the other end after a moment, and each resends what the other has not taken. A
connection that was closed has ended, and so has the link; so has one whose peer refuses to go on or listens no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial

from torch import Tensor

from simcluster.errors import HandshakeRefused, ProtocolError, RunError
from simcluster_backends.common.event_loop import KEEPER
from simcluster_backends.sockets.net.connection import Connection
from simcluster_backends.sockets.net.send_queue import QueuedFrame, SendFuture, SendQueue
from simcluster_backends.sockets.net.shared_memory import SLOT_BYTES, SLOTS
from simcluster_backends.sockets.wire.frame import JOIN_BYTES, SHARED_BYTES, Frame, FrameKind, Landing
from simcluster_backends.sockets.wire.handshake import PeerIdentity
from simcluster_backends.sockets.wire.outgoing import OutgoingFrame
from simcluster_backends.sockets.wire.reader import FrameReader

ACKNOWLEDGED_BYTES, SHARED_ACKNOWLEDGED_BYTES = 128 * 1024, 512 * 1024
"""Received before it is acknowledged. So a healthy connection spends 40 bytes per large message, or per many small.

Messages in shared memory stay there, so that their sender waits for no acknowledgement."""

LEAST_KEPT_BYTES = 8 * ACKNOWLEDGED_BYTES
"""A sender that kept no more than its peer leaves unacknowledged would wait forever."""

LENT_S = 0.02
"""A frame that has left waits this long in the caller's memory for its acknowledgement; then it is copied."""

SECOND_S = 0.25
"""Head start of the end that dialled first."""

Dial = Callable[["PeerLink"], Awaitable[object]]
"""Dials the peer of a link again; calls `resume` if it succeeds, else raises."""


class PeerLink:
    """A connection that may be replaced by others to the same incarnation. Its owner sets `on_frame` and `on_lost`.

    It sends again what is not acknowledged, which is at most *keeps_bytes*, or 1 MiB, and a frame. *dial* is None at an
    end that does not know the other's address. A link that has been broken for *dead_s* is lost. Without *digests*,
    what arrives through shared memory has no `body_crc`.
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
    ) -> None:
        self.peer: PeerIdentity = connection.peer
        self.on_frame: Callable[[Frame], None] = lambda frame: None
        self.on_lost: Callable[[str], None] = lambda reason: None
        self.resets = 0  # connections that have broken
        self.queue = SendQueue(max(keeps_bytes, LEAST_KEPT_BYTES), self._lends)
        self._dead_s, self._dial, self._wait_s = dead_s, dial, 0.0 if first else SECOND_S
        self._connection: Connection | None = None
        self._reader = connection.reader
        self._reader.digests = digests
        self._moved = self._unsaid = 0  # bytes: on past connections; received and not acknowledged
        self._paused = False
        self._held = (False, False)
        self._loop, self._context = asyncio.get_running_loop(), copy_context()
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
        """Whether it has no connection, but may get one."""
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
        """Queue *frame* and write what can be written now. *on_left* is called when it has left."""
        sending = QueuedFrame(frame, left, on_left)
        if self.is_open:
            self.queue.put(sending)
            if self._connection is not None:
                if frame.body_bytes >= SHARED_BYTES and self._connection.memory is not None:
                    self._connection.memory.offer()
                self._connection.pump()
        else:
            sending.end(ConnectionResetError(self._lost or "the connection was closed"))
        return sending

    def land(self, tag: str, place: Tensor) -> Landing | None:
        """See FrameReader."""
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
        """Apply a fault: stop writing or reading until the next call."""
        self._held = writing, reading
        if self._connection is not None:
            self._connection.hold(writing=writing, reading=reading)

    def reset(self, reason: str) -> None:
        """Break the connection; this end and the other make another one."""
        if self._connection is not None:
            self._connection.reset(reason)

    def abort(self, reason: str) -> None:
        """End the link immediately, with its connection if it has one."""
        if self._connection is not None and not self._connection.has_broken:
            self._connection.drop(reason)
        elif self._lost is None:
            self._loop.call_soon(self._lose, reason, context=self._context.copy())

    async def end(self, grace_s: float = 1.0) -> None:
        """End the link after *grace_s* for what has not left. A broken one ends at once."""
        if self._connection is not None:
            await self._connection.end(grace_s)
        self._lose("closed by this node")

    # a new connection

    def refusal(self, taken: int) -> str | None:
        """Return why the peer, which says that it has *taken* frames, may not resume; None if it may."""
        return "the connection has been given up" if not self.is_open else self.queue.problem_with(taken)

    def yields(self) -> int:
        """Read no more from the old connection, which the peer replaces; return the number of frames taken."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._forget(connection)
            connection.reset("replaced by another connection of the same peer")
        return self.taken

    def resume(self, connection: Connection, taken: int) -> None:
        """Continue over *connection*; its peer says that it has *taken* frames."""
        self.yields()
        if (problem := self.refusal(taken)) is not None:
            connection.on_lost = lambda reason: None
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
                if frame.size_bytes > held:  # its sender may wait for this
                    self._say(after_others=False)
                else:
                    self._loop.call_soon(self._say, True, context=self._context)

    def _say(self, after_others: bool) -> None:
        """Send what waits. An acknowledgement may wait for *others*, which may send a frame that takes it along.

        These are the program, which has the message now, and the tasks that its next step starts.
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
        connection.on_frame, connection.on_lost = (lambda frame: None), (lambda reason: None)
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
        """End the link for good."""
        if self._lost is not None:
            return
        self._lost = reason
        if self._until is not None:
            self._until.cancel()
        if self._dialling is not None and self._dialling is not asyncio.current_task():
            self._dialling.cancel()
        self.queue.fail(reason)
        self.on_lost(reason)
