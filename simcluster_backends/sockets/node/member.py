"""The connections of one node to its peers: membership, losses and arriving messages."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from simcluster.errors import ENDED, ProtocolError
from simcluster.fault_plans.kinds import GIVEN_UP, Factors
from simcluster.payload import Message, Payload
from simcluster.replays.order import Kind as Event
from simcluster_backends.common.device import Device
from simcluster_backends.common.inbox import INBOX_BYTES, Inbox
from simcluster_backends.common.real_node import Activity
from simcluster_backends.common.watchdog import Progress
from simcluster_backends.sockets.node.rejoining import Returning
from simcluster_backends.sockets.wire.frame import Frame, Kind, Outgoing

if TYPE_CHECKING:
    from simcluster.replays.notes import Notes
    from simcluster.runs.recorder import Recorder
    from simcluster_backends.sockets.net.connection import Connection

log = logging.getLogger("simcluster.sockets")

REASON_LIMIT = 200
LAST_WORDS_S = 1.0
"""Grace period for draining a lost peer's connection."""
WORK_S = 5.0
"""Time for work still running at the end of the run to finish."""


class Member:
    """One node among its peers. `attach` gives it a connection to each of them.

    An algorithm gets only the transport and cannot reach this. The order of external events is recorded in *notes*. The
    fault plan makes its device *slow* at times.
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
        self.rank, self.name, self.names = rank, names[rank], names
        self.recorder, self.notes = recorder, notes
        self.outside = contextvars.copy_context()  # without notes: for callbacks that are not the program's
        self._inbox_bytes = inbox_bytes
        self._loop = asyncio.get_running_loop()
        self._unheard: set[int] = set()  # peers cut off by the plan: they close because they heard nothing
        self._links: dict[int, Connection] = {}
        self._held: dict[int, tuple[bool, bool]] = {}  # by a fault: (writing is held, reading is held)
        self._returning = Returning(self)
        told = self._returning.told
        self.inbox = Inbox(rank, names, self._loop, self._has_room, on_told=told, life_of=self._life_of)
        self._goodbye: Outgoing | None = None  # the frame sent to all peers
        self._closed = False
        self.device = Device(self.name, recorder, slow=slow, notes=notes)
        self.activity = Activity(self.inbox, self.device, recorder)

    def link(self, to: int) -> Connection | None:
        """Return the connection to *to*; None if *to* had ended before this node joined."""
        return self._links.get(to)

    def attach(self, rank: int, connection: Connection) -> None:
        """Take *connection*, whose handshake is done, as the stream to and from *rank*, which may have rejoined."""
        if self._closed:
            connection.abort("this node's algorithm has failed")
        elif self._goodbye is not None:
            self._returning.drain(connection, self._goodbye)
        elif rank in self._links or rank in self.inbox.lost:
            self._returning.welcome(rank, connection, self._links.get(rank))
        else:
            self.deal_with(rank, connection)

    def deal_with(self, rank: int, connection: Connection) -> None:
        """Use *connection* as the only one to and from *rank* from now on."""
        if rank in self._links:
            self._returning.retire(self._links[rank])
        self._links[rank] = connection
        if rank in self._held:
            self.hold(rank, *self._held[rank])
        connection.on_frame = lambda frame: self._receive(rank, frame)
        connection.on_lost = lambda reason: self.lose(rank, GIVEN_UP if rank in self._unheard else reason)

    def hold(self, rank: int, writing: bool, reading: bool) -> None:
        """Hold writing to *rank*, reading from it, or neither, as a fault orders."""
        self._held[rank] = writing, reading
        if rank in self._links:
            self._links[rank].hold(writing=writing, reading=reading)
        (self._unheard.add if writing and not reading else self._unheard.discard)(rank)

    def give_up(self, rank: int, reason: str) -> None:
        """Declare *rank*, unreachable for too long, lost; drop what it had sent."""
        if rank in self._links and not self.inbox.lost.get(rank):
            self._links[rank].abort(reason)

    def lose(self, rank: int, reason: str) -> None:
        """Note that *rank* is gone: dead, or done if *reason* is ENDED."""
        if self.notes is not None and rank not in self.inbox.lost:
            if reason == ENDED:
                self.notes.note(Event.ENDED, rank)
            else:
                self.notes.gone(Event.LOST, rank, reason)
        self.inbox.lose(rank, reason)

    def expect_end(self, rank: int, reason: str, incarnation: int = 0) -> None:
        """Expect the end of *rank*, which is known to be gone, after draining what it had sent for a grace period."""
        self._unheard.discard(rank)
        link = self._returning.link_of(rank, incarnation, self._links.get(rank))
        if link is None or not link.is_open:
            return
        link.resume_reading()
        self._loop.call_later(LAST_WORDS_S, link.abort, reason)

    def later(self, callback: Callable[..., object], *args: Any) -> None:
        """Call *callback* soon, outside the program's context."""
        self._loop.call_soon(callback, *args, context=self.outside.copy())

    def finish(self, reason: str = "") -> None:
        """Send all peers a goodbye, as the algorithm has ended or left for *reason*; drop what still arrives."""
        self._goodbye = Outgoing(Kind.GOODBYE, reason.encode())
        for link in self.links:
            if link.is_open:
                link.put(self._goodbye)
        self._returning.drain_waiting(self._goodbye)
        self._stop_receiving()

    async def close(self, *, crash: bool = False) -> None:
        """End all connections and give work that still runs time to finish. Nothing may follow."""
        self._closed = True
        self._stop_receiving()
        links = [*self._links.values(), *self._returning.links()]
        if crash:
            for link in links:
                link.abort("this node crashed")
        await asyncio.gather(*(link.end() for link in links))
        if not await self._loop.run_in_executor(None, self.device.close, WORK_S):
            log.warning("%s: a piece of its work has not ended after %g s; it is left behind", self.name, WORK_S)

    @property
    def links(self) -> list[Connection]:
        """The connections in use."""
        return list(self._links.values())

    @property
    def progress(self) -> Progress:
        """This node's progress, for the launcher's watchdog."""
        moved = sum(link.bytes_moved for link in [*self.links, *self._returning.past])
        return self.activity.progress(moved, ended=self.recorder.record.finished_s is not None)

    @property
    def handshake_and_goodbye_bytes(self) -> int:
        """The bytes sent to peers besides messages."""
        data = sum(count[1] for count in self.recorder.record.sent_to.values())
        return max(0, sum(link.queue.bytes_sent for link in [*self.links, *self._returning.past]) - data)

    # inside

    def _life_of(self, rank: int) -> int:
        """Return the incarnation of *rank* that this node is connected to."""
        return self._links[rank].peer.incarnation if rank in self._links else 0

    def _stop_receiving(self) -> None:
        self.inbox.close()
        for link in self.links:
            link.on_lost = lambda reason: None
            link.resume_reading()

    def _receive(self, rank: int, frame: Frame) -> None:
        if frame.kind is Kind.GOODBYE:  # it has ended, or left for a reason and accepts nothing more
            reason = frame.header.decode(errors="replace")[:REASON_LIMIT]
            self.lose(rank, reason or ENDED)
            if reason:
                self._links[rank].abort(reason)
            return
        if frame.kind is not Kind.DATA or frame.message is None:
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
        if self.inbox.mailbox.queued_bytes(rank) >= self._inbox_bytes:
            self._links[rank].pause_reading()

    def _has_room(self, source: int) -> None:
        if self.inbox.mailbox.queued_bytes(source) < self._inbox_bytes:
            self.outside.run(self._links[source].resume_reading)
