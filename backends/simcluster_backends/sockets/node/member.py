"""The connections of one node to its peers: membership, losses and arriving messages."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from simcluster.errors import ENDED, ProtocolError
from simcluster.fault_plans.kinds import GIVEN_UP
from simcluster.fault_plans.slowdown import Factors
from simcluster.payload import Message, Payload
from simcluster.runs.event_order import EventKind
from simcluster_backends.common.device import NodeDevice
from simcluster_backends.common.inbox import INBOX_BYTES, Inbox
from simcluster_backends.common.real_node import NodeActivity
from simcluster_backends.common.watchdog import NodeProgress
from simcluster_backends.sockets.net.connection import ignore
from simcluster_backends.sockets.wire.frame import Frame, FrameKind
from simcluster_backends.sockets.wire.outgoing import OutgoingFrame

if TYPE_CHECKING:
    from simcluster.runs.event_notes import Notes
    from simcluster.runs.recorder import Recorder
    from simcluster_backends.sockets.net.link import PeerLink

log = logging.getLogger("simcluster.sockets")

REASON_LIMIT = 200
BACK = "it has rejoined, and its previous incarnation is gone"
LAST_WORDS_S = 1.0
"""Grace period for draining a lost peer's connection."""
WORK_S = 5.0
"""The time that device work has to finish at the end of the run."""


class SocketMember:
    """One node among its peers. `attach` gives it a connection to each of them.

    An algorithm sees only the transport, not this object. *notes* records external events for a
    replay. *slow* has the slowdowns of the fault plan.
    """

    def __init__(
        self,
        rank: int,
        names: Sequence[str],
        recorder: Recorder,
        *,
        inbox_bytes: int = INBOX_BYTES,
        slow: Factors = (),
        notes: Notes | None = None,
    ) -> None:
        self.rank = rank
        self.name = names[rank]
        self.names = names
        self.recorder = recorder
        self.notes = notes
        # The context of callbacks that do not belong to the program: it records no notes.
        self.outside = contextvars.copy_context()
        self.inbox_bytes = inbox_bytes
        self._loop = asyncio.get_running_loop()
        # Peers to which a cut stops writing: they will close the link because they hear nothing.
        self._unheard: set[int] = set()
        # The links in use, by rank. A peer that had ended before this node joined has none.
        self.links: dict[int, PeerLink] = {}
        self._held: dict[int, tuple[bool, bool]] = {}  # by faults: (writing held, reading held)
        self._returning = ReturningPeers(self)
        told = self._returning.told
        self.inbox = Inbox(rank, names, self._loop, self._has_room, on_told=told, life_of=self._life_of)
        self._goodbye: OutgoingFrame | None = None  # the frame sent to all peers
        self._closed = False
        self.device = NodeDevice(self.name, recorder, slow=slow, notes=notes)
        self.activity = NodeActivity(self.inbox, self.device, recorder)

    def attach(self, rank: int, connection: PeerLink) -> None:
        """Use *connection*, after its handshake, for *rank*, which may have rejoined."""
        if self._closed:
            connection.abort("this node's algorithm has failed")
        elif self._goodbye is not None:
            self._returning.drain(connection, self._goodbye)
        elif rank in self.links or rank in self.inbox.lost:
            self._returning.welcome(rank, connection, self.links.get(rank))
        else:
            self.deal_with(rank, connection)

    def deal_with(self, rank: int, connection: PeerLink) -> None:
        """Use *connection* for *rank* from now on, and retire the previous one."""
        if rank in self.links:
            self._returning.retire(self.links[rank])
        self.links[rank] = connection
        if rank in self._held:
            self.hold(rank, *self._held[rank])
        connection.on_frame = lambda frame: self._receive(rank, frame)
        connection.on_lost = lambda reason: self.lose(rank, GIVEN_UP if rank in self._unheard else reason)

    def hold(self, rank: int, writing: bool, reading: bool) -> None:
        """Hold writing to *rank*, reading from it, or neither, as a fault orders."""
        self._held[rank] = writing, reading
        if rank in self.links:
            self.links[rank].hold(writing=writing, reading=reading)
        (self._unheard.add if writing and not reading else self._unheard.discard)(rank)

    def reset(self, rank: int) -> None:
        """Break the connection to *rank*, as a fault orders."""
        if rank in self.links:
            self.links[rank].reset("reset by the fault plan")

    def give_up(self, rank: int, reason: str) -> None:
        """Abort the link to *rank*, which has been unreachable for too long."""
        if rank in self.links and not self.inbox.lost.get(rank):
            self.links[rank].abort(reason)

    def lose(self, rank: int, reason: str) -> None:
        """Note that *rank* is gone. It ended well if *reason* is ENDED; otherwise it is lost."""
        if self.notes is not None and rank not in self.inbox.lost:
            if reason == ENDED:
                self.notes.note(EventKind.ENDED, rank)
            else:
                self.notes.gone(EventKind.LOST, rank, reason)
        self.inbox.lose(rank, reason)

    def expect_end(self, rank: int, reason: str, incarnation: int = 0) -> None:
        """Drain and then end the link to *incarnation* of *rank*, which is known to be gone."""
        self._unheard.discard(rank)
        waiting = self._returning.waiting.get(rank)
        known = self.links.get(rank), waiting[0] if waiting is not None else None
        link = next((link for link in known if link is not None and link.peer.incarnation == incarnation), None)
        if link is not None and link.is_broken:
            link.abort(reason)
        elif link is not None and link.is_open:
            link.resume_reading()
            self._loop.call_later(LAST_WORDS_S, link.abort, reason)

    def later(self, callback: Callable[..., object], *args: Any) -> None:
        """Call *callback* in the loop's next turn, outside the program's context."""
        self._loop.call_soon(callback, *args, context=self.outside.copy())

    def finish(self, reason: str = "") -> None:
        """Send all peers a goodbye, and drop messages that still arrive.

        The algorithm has ended. If *reason* is not empty, the node has left early for that reason.
        """
        self._goodbye = OutgoingFrame(FrameKind.GOODBYE, reason.encode())
        for link in self.links.values():
            if link.is_open:
                link.put(self._goodbye)
        waiting, self._returning.waiting = self._returning.waiting, {}
        for link, _ in waiting.values():
            self._returning.drain(link, self._goodbye)
        self._stop_receiving()

    async def close(self, *, crash: bool = False) -> None:
        """End all connections, and wait up to WORK_S for device work. Make no call after this one.

        With *crash*, abort the connections instead.
        """
        self._closed = True
        self._stop_receiving()
        links = [*self.links.values(), *self._returning.links()]
        if crash:
            for link in links:
                link.abort("this node crashed")
        await asyncio.gather(*(link.end() for link in links))
        if not await self._loop.run_in_executor(None, self.device.close, WORK_S):
            log.warning("%s: a piece of its work has not ended after %g s; it is left behind", self.name, WORK_S)

    @property
    def progress(self) -> NodeProgress:
        """This node's progress, for the launcher's watchdog."""
        moved = sum(link.bytes_moved for link in [*self.links.values(), *self._returning.past])
        return self.activity.progress(moved, ended=self.recorder.record.finished_s is not None)

    @property
    def handshake_and_goodbye_bytes(self) -> int:
        """The number of bytes that were sent to peers outside messages."""
        data = sum(count[1] for count in self.recorder.record.sent_to.values())
        return max(0, sum(link.queue.bytes_sent for link in [*self.links.values(), *self._returning.past]) - data)

    def _life_of(self, rank: int) -> int:
        """Return the incarnation of *rank* that this node is connected to."""
        return self.links[rank].peer.incarnation if rank in self.links else 0

    def _stop_receiving(self) -> None:
        self.inbox.close()
        for link in self.links.values():
            link.on_lost = ignore
            link.resume_reading()

    def _receive(self, rank: int, frame: Frame) -> None:
        if frame.kind is FrameKind.GOODBYE:
            # The peer has ended; with a reason, it has left and reads nothing more.
            reason = frame.header.decode(errors="replace")[:REASON_LIMIT]
            self.lose(rank, reason or ENDED)
            if reason:
                self.links[rank].abort(reason)
            return
        if frame.kind is not FrameKind.DATA or frame.message is None:
            raise ProtocolError(f"a {frame.kind.name} frame on the data lane")
        if self.inbox.lost.get(rank) == ENDED:
            raise ProtocolError("a message after the goodbye")
        payload = Payload(frame.tensors, frame.message.values)
        life = self._life_of(rank)
        message = Message(rank, frame.message.tag, payload, frame.size_bytes, incarnation=life)
        if self.notes is not None:
            self.notes.message(rank, zlib.crc32(frame.header, frame.body_crc))
        if frame.landing is not None:
            frame.landing.message = message
        self.inbox.put(message)
        if self.inbox.mailbox.queued_bytes(rank) >= self.inbox_bytes:
            self.links[rank].pause_reading()

    def _has_room(self, source: int) -> None:
        if self.inbox.mailbox.queued_bytes(source) < self.inbox_bytes:
            self.outside.run(self.links[source].resume_reading)


class ReturningPeers:
    """The new connections of peers that rejoin or join late.

    A peer that rejoins is a new incarnation. Its connection waits, unread, until the loss of the
    previous incarnation has been raised here. Otherwise the algorithm would attribute its messages
    to the previous incarnation. The new connection then replaces the old one, which *past* keeps
    for its byte counts.
    """

    def __init__(self, member: SocketMember) -> None:
        self._member = member
        self.waiting: dict[int, tuple[PeerLink, list[Frame]]] = {}
        self._drained: list[PeerLink] = []
        self.past: list[PeerLink] = []

    def links(self) -> list[PeerLink]:
        """Return the open connections that are not in use."""
        return [*(connection for connection, _ in self.waiting.values()), *self._drained]

    def welcome(self, rank: int, connection: PeerLink, old: PeerLink | None) -> None:
        """Hold *connection* of *rank*, which has joined or rejoined, until it can replace *old*."""
        if rank in self.waiting:  # it has rejoined twice before its loss was raised
            self.retire(self.waiting.pop(rank)[0])
        come: list[Frame] = []
        self.waiting[rank] = connection, come
        connection.on_frame = come.append
        connection.on_lost = lambda reason: self._forget(rank, connection)
        connection.pause_reading()
        if self._member.inbox.has_told(rank):
            self._member.later(self._accept, rank)
        elif old is not None:
            self._member.expect_end(rank, BACK, old.peer.incarnation)

    def told(self, rank: int) -> None:
        """Accept the waiting connection of *rank*, if any: the loss of *rank* is being raised."""
        if rank in self.waiting:
            # In the next turn: receives that wait for the old incarnation must fail first.
            self._member.later(self._accept, rank)

    def drain(self, connection: PeerLink, goodbye: OutgoingFrame) -> None:
        """Send *goodbye* on *connection*, since this node has ended, and drop what arrives."""
        connection.on_frame = connection.on_lost = ignore
        self._drained.append(connection)
        if connection.is_open:
            connection.put(goodbye)
            connection.resume_reading()

    def retire(self, connection: PeerLink) -> None:
        """Close *connection* and ignore it from now on."""
        connection.on_frame = connection.on_lost = ignore
        connection.abort(BACK)
        self.past.append(connection)

    def _accept(self, rank: int) -> None:
        """Use the connection of the new incarnation, if the loss of the previous one has been raised."""
        if rank not in self.waiting or not self._member.inbox.has_told(rank):
            return
        connection, come = self.waiting.pop(rank)
        self._member.inbox.found(rank)
        self._member.deal_with(rank, connection)
        connection.resume_reading()
        try:
            for frame in come:
                connection.on_frame(frame)
        except ProtocolError as error:
            connection.abort(str(error))

    def _forget(self, rank: int, connection: PeerLink) -> None:
        """Forget *connection*, which was lost before it was accepted."""
        if rank in self.waiting and self.waiting[rank][0] is connection:
            del self.waiting[rank]
            self.past.append(connection)
