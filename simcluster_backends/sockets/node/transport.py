"""One node's view of its cluster over real connections: simcluster.transport.Transport, promise by promise."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from torch import Tensor

from simcluster.errors import ENDED, PeerLost, ProtocolError
from simcluster.fault_plans.kinds import GIVEN_UP, Factors, stretched
from simcluster.payload import Lent, Message, Payload, Sendable, as_payload
from simcluster.replays.order import Kind as Event
from simcluster.rng import NodeRandom
from simcluster.transport import ANY, Any_, Cost
from simcluster_backends.common.arguments import check_work, name_of
from simcluster_backends.common.device_thread import DeviceThread
from simcluster_backends.common.inbox import INBOX_BYTES, Inbox
from simcluster_backends.sockets.node.order import Leaving
from simcluster_backends.sockets.node.rejoining import Returning
from simcluster_backends.sockets.wire.frame import (
    BODY_LIMIT_BYTES,
    MESSAGE_LIMIT_BYTES,
    Frame,
    Kind,
    Outgoing,
    data_frame,
)

if TYPE_CHECKING:
    from simcluster.replays.notes import Notes
    from simcluster.runs.record import Recorder
    from simcluster_backends.sockets.net.connection import Connection, Sending

T = TypeVar("T")
Outcome: TypeAlias = tuple[Any, BaseException | None]
"""What a piece of work returned, or raised."""

log = logging.getLogger("simcluster.sockets")

REASON_LIMIT = 200
LAST_WORDS_S = 1.0
"""How long what a lost peer had sent may still come out of its connection."""
WORK_S = 5.0
"""How long the piece of work that runs when all is over may take to end."""


class SocketTransport:
    """A node whose peers are other processes. `attach` gives it a connection for each of them.

    What reaches its program from outside, in which order, goes into *notes*. sim/replay/node.py does as this does,
    await by await: a change of the awaits of a verb here is made there, too.
    """

    def __init__(
        self,
        rank: int,
        names: list[str],
        seed: int,
        recorder: Recorder,
        *,
        inbox_bytes: int = INBOX_BYTES,
        body_limit_bytes: int = BODY_LIMIT_BYTES,
        message_limits: Sequence[int] = (),
        slow: Factors = (),
        notes: Notes | None = None,
    ) -> None:
        self.rank, self.size, self.name = rank, len(names), names[rank]
        self.recorder = recorder
        self.rng = NodeRandom(seed, self.name)
        self.done = 0  # pieces of work and records: what counts as progress of a run
        self.computing = 0
        self.sending: dict[int, str] = {}  # number -> words, for the report of a run that stands still
        self._inbox_bytes, self._body_limit_bytes = inbox_bytes, body_limit_bytes
        self._message_limits = message_limits or [MESSAGE_LIMIT_BYTES] * len(names)
        self._slow = slow  # by the fault plan
        self._unheard: set[int] = set()  # by it: who closes, does so for having heard nothing from this node
        self._loop = asyncio.get_running_loop()
        self._links: dict[int, Connection] = {}
        self._held: dict[int, tuple[bool, bool]] = {}  # by a fault: whether not to write, not to read
        self.inbox = Inbox(
            rank,
            names,
            self._loop,
            self._has_room,
            on_told=lambda peer: self._returning.told(peer),
            life_of=self._life_of,
        )
        self._returning = Returning(self.inbox, deal_with=self.deal_with, expect_end=self.expect_end, later=self.later)
        self.notes = notes
        self._outside = contextvars.copy_context()  # without notes: for callbacks that are not the program's
        self._goodbye: Outgoing | None = None  # what was said to all peers
        self._closed = False
        self._putting: Leaving | None = None  # whose frame the program is putting on its stream just now
        self._sends = self._received = self._pieces = 0
        self._device = DeviceThread(f"device of {self.name}")
        recorder.settle = self._device.settle

    @property
    def peers(self) -> list[int]:
        return self.inbox.peers

    async def send(self, to: int, tag: str, content: Sendable) -> None:
        payload = as_payload(content)
        self.inbox.check_peer(to)
        frame = data_frame(tag, payload, self._body_limit_bytes, self._message_limits[to])
        if self.inbox.died(to):
            await asyncio.sleep(0)
            raise self.inbox.error(to)
        if to not in self._links:  # it had ended, and its process was gone, before this node came
            await asyncio.sleep(0)
            return
        start_s = self.recorder.now()
        left: asyncio.Future[None] = self._loop.create_future()
        self._sends += 1
        number, link = self._sends, self._links[to]
        sending = self._put(number, to, frame, left)
        self.sending[number] = f"send(to={to}, tag={tag!r}, {frame.body_bytes} B)"
        if not (left.done() or isinstance(payload, Lent)):
            frame.keep()  # what the kernel has not taken yet
        try:
            if left.done():
                await asyncio.sleep(0)
            await left
        except asyncio.CancelledError:
            if link.withdraw(sending) and self.notes is not None:
                self.notes.answers.withdrawn.append(number)
            raise
        except ConnectionError as error:
            if self._links[to] is not link:  # that of the incarnation before
                raise PeerLost(to, self.inbox.name_of(to), str(error), link.peer.incarnation) from None
            self.inbox.lose(to, str(error))
            raise self.inbox.error(to) from None
        finally:
            del self.sending[number]
        self.recorder.span("send", start_s, self.recorder.now(), to, tag, frame.size_bytes)

    def land(self, source: int, tag: str, place: Tensor) -> Callable[[], None] | None:
        """See simcluster.collectives.landing."""
        link = self._links.get(source)
        if link is None or self.inbox.mailbox.has(source, tag):
            return None
        landing = link.land(tag, place)
        return None if landing is None else partial(link.take_back, landing)

    async def recv(self, source: int | Any_ = ANY, tag: str | Any_ = ANY) -> Message:
        start_s = self.recorder.now()
        message = await self.inbox.take(source, tag)
        self._received += 1
        self.recorder.received(message.size_bytes)
        self.recorder.span("recv", start_s, self.recorder.now(), message.source, message.tag, message.size_bytes)
        return message

    async def compute(self, work: Callable[..., T], *args: Any, cost: Cost, **kwargs: Any) -> T:
        check_work(work, cost)
        self._pieces += 1
        number = self._pieces
        done: asyncio.Future[Outcome] = self._loop.create_future()

        def piece() -> None:
            start_s = self.recorder.now()
            outcome: Outcome
            try:
                outcome = work(*args, **kwargs), None
            except BaseException as error:
                # Handed over as a value: a future refuses to carry StopIteration, and the waiter would hang.
                outcome = None, error
            if self._slow:
                took_s = self.recorder.now() - start_s
                time.sleep(stretched(self._slow, start_s, took_s) - took_s)
            span = start_s, self.recorder.now()
            self._loop.call_soon_threadsafe(self._computed, number, name_of(work), done, outcome, *span)

        self.computing += 1
        waiting = self._device.submit(piece)
        try:
            result, error = await done
        except asyncio.CancelledError:
            if waiting.cancel():  # it never ran, so nobody else counts it down
                self.computing -= 1
                if self.notes is not None:
                    self.notes.answers.never_ran.append(number)
            raise
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    async def aside(self, work: Callable[[], T]) -> T:
        """Do *work* where no work of the algorithm runs at the same time; none of this is noted."""
        return await asyncio.wrap_future(self._device.submit(work))

    def record(self, *, step: int, **metrics: float) -> None:
        self.done += 1
        self.recorder.metrics(step, metrics)

    # what the node calls

    def attach(self, rank: int, connection: Connection) -> None:
        """*connection* is the stream to and from *rank*, which may have come back; its handshake is done."""
        if self._closed:
            connection.abort("this node's algorithm has failed")
        elif self._goodbye is not None:
            self._returning.drain(connection, self._goodbye)
        elif rank in self._links or rank in self.inbox.lost:
            self._returning.welcome(rank, connection, self._links.get(rank))
        else:
            self.deal_with(rank, connection)

    def deal_with(self, rank: int, connection: Connection) -> None:
        """*connection* is the only one to and from *rank* from now on."""
        if rank in self._links:
            self._returning.retire(self._links[rank])
        self._links[rank] = connection
        if rank in self._held:
            self.hold(rank, *self._held[rank])
        connection.on_frame = lambda frame: self._receive(rank, frame)
        connection.on_lost = lambda reason: self.lose(rank, GIVEN_UP if rank in self._unheard else reason)

    def hold(self, rank: int, writing: bool, reading: bool) -> None:
        """A fault: nothing is written to *rank* for now, or nothing read from it."""
        self._held[rank] = writing, reading
        if rank in self._links:
            self._links[rank].hold(writing=writing, reading=reading)
        (self._unheard.add if writing and not reading else self._unheard.discard)(rank)

    def give_up(self, rank: int, reason: str) -> None:
        """*rank* has been out of reach for too long: it is lost here, and so is what it had sent."""
        if rank in self._links and not self.inbox.lost.get(rank):
            self._links[rank].abort(reason)

    def lose(self, rank: int, reason: str) -> None:
        """*rank* is gone: dead, or done if *reason* is ENDED."""
        if self.notes is not None and rank not in self.inbox.lost:
            if reason == ENDED:
                self.notes.note(Event.ENDED, rank)
            else:
                self.notes.gone(Event.LOST, rank, reason)
        self.inbox.lose(rank, reason)

    def _life_of(self, rank: int) -> int:
        """Return which life of *rank* this node deals with."""
        return self._links[rank].peer.incarnation if rank in self._links else 0

    def expect_end(self, rank: int, reason: str, incarnation: int = 0) -> None:
        """Somebody who knows says that *rank* is gone. What it had sent comes first, if it comes soon."""
        self._unheard.discard(rank)
        link = self._returning.link_of(rank, incarnation, self._links.get(rank))
        if link is None or not link.is_open:
            return
        link.resume_reading()
        self._loop.call_later(LAST_WORDS_S, link.abort, reason)

    def later(self, callback: Callable[..., object], *args: Any) -> None:
        """Calls *callback* soon, as nobody's of the program."""
        self._loop.call_soon(callback, *args, context=self._outside.copy())

    def finish(self, reason: str = "") -> None:
        """The algorithm has ended well, or this node leaves for *reason*: a goodbye to all; what comes is dropped."""
        self._goodbye = Outgoing(Kind.GOODBYE, reason.encode())
        for link in self.links:
            if link.is_open:
                link.put(self._goodbye)
        self._returning.drain_waiting(self._goodbye)
        self._stop_receiving()

    async def close(self, *, crash: bool = False) -> None:
        """Ends all connections, and waits a while for the piece of work that may still run. Nothing may follow."""
        self._closed = True
        self._stop_receiving()
        links = [*self._links.values(), *self._returning.links()]
        if crash:
            for link in links:
                link.abort("this node crashed")
        await asyncio.gather(*(link.end() for link in links))
        if not await self._loop.run_in_executor(None, self._device.close, WORK_S):
            log.warning("%s: a piece of its work has not ended after %g s; it is left behind", self.name, WORK_S)

    @property
    def links(self) -> list[Connection]:
        """Those to peers that are dealt with."""
        return list(self._links.values())

    @property
    def moved(self) -> int:
        """Rises with everything that happens here: a launcher that sees it stand still may worry."""
        return self.done + self._received + sum(link.bytes_moved for link in [*self.links, *self._returning.past])

    def waits(self) -> list[str]:
        """What this node's tasks wait for, in words."""
        return self.inbox.mailbox.describe() + list(self.sending.values())

    @property
    def handshake_and_goodbye_bytes(self) -> int:
        """Return the bytes on the connections to peers that were no messages."""
        data = sum(count[1] for count in self.recorder.record.sent_to.values())
        return max(0, sum(link.bytes_sent for link in [*self.links, *self._returning.past]) - data)

    # inside

    def _stop_receiving(self) -> None:
        self.inbox.close()
        for link in self.links:
            link.on_lost = lambda reason: None
            link.resume_reading()

    def _receive(self, rank: int, frame: Frame) -> None:
        if frame.kind is Kind.GOODBYE:
            self._say_goodbye(rank, frame.header.decode(errors="replace")[:REASON_LIMIT])
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

    def _say_goodbye(self, rank: int, reason: str) -> None:
        """*rank* has ended, or left for *reason*: in that case nothing is taken there any more."""
        self.lose(rank, reason or ENDED)
        if reason:
            self._links[rank].abort(reason)

    def _has_room(self, source: int) -> None:
        if self.inbox.mailbox.queued_bytes(source) < self._inbox_bytes:
            self._outside.run(self._links[source].resume_reading)

    def _put(self, number: int, to: int, frame: Outgoing, left: asyncio.Future[None]) -> Sending:
        """Puts *frame* on its stream; what the connection has called of that is not the program's."""

        def has_left() -> None:
            self.recorder.sent(to, frame.size_bytes)

        put, notes = self._links[to].put, self.notes
        if notes is None:
            return put(frame, left, has_left)
        self._putting = leaving = Leaving(number, left, notes, later=self.later, putting=lambda: self._putting)
        try:
            sending = self._outside.run(put, frame, leaving, has_left)
        finally:
            self._putting = None
        if not left.done():
            notes.answers.waited.append(number)
        return sending

    def _computed(
        self, number: int, name: str, done: asyncio.Future[Outcome], outcome: Outcome, start_s: float, end_s: float
    ) -> None:
        self.computing -= 1
        self.done += 1
        self.recorder.span("compute", start_s, end_s, -1, "", 0)
        if self.notes is not None:
            self.notes.answers.names.append(name)
            self.notes.answers.took_s.append(end_s - start_s)
        if not done.done():
            if self.notes is not None:
                self.notes.note(Event.COMPUTED, number)
            done.set_result(outcome)
