"""The transport interface in virtual time: streams over the fluid network, a mailbox, a device.

This file knows one cluster of simulated nodes in one loop. It must not know algorithms, files or sockets.

A message's body is injected at the rate that the network gives it and arrives one route latency after its last byte
left; its header counts as bytes but takes no time of its own (docs/design-decisions.md says why).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from simcluster.errors import PeerLost
from simcluster.mailbox import Mailbox
from simcluster.payload import Message, Sendable, as_payload, freeze, sizes_of
from simcluster.rng import NodeRandom
from simcluster.transport import ANY, Any_, Cost

if TYPE_CHECKING:
    from backends.sim.cluster import Cluster
    from backends.sim.devices import DeviceModel
    from backends.sim.network import Flow, Route
    from simcluster.results.record import Recorder

T = TypeVar("T")

INBOX_BYTES = 64 * 1024 * 1024
"""Unreceived bytes per peer beyond which a node stops reading from it, as the sockets backend does."""


class Departure(NamedTuple):
    """A node's end, which peers hear of one latency later; a good end is not told to recv(ANY)."""

    time_s: float
    reason: str
    tell_any: bool


class Outgoing:
    """A message on its way out: *injected* is done when its last byte has left, at *left_s*.

    *beside* is a receiver that waits together with it, in an exchange, and fails with it.
    """

    __slots__ = ("beside", "body_B", "flow", "injected", "left_s", "message")

    def __init__(self, message: Message, body_B: int, injected: asyncio.Future[None]) -> None:
        self.message = message
        self.body_B = body_B
        self.injected = injected
        self.flow: Flow | None = None
        self.beside: asyncio.Future[Message] | None = None
        self.left_s = 0.0


class Stream:
    """The ordered bytes from one node to another: one message is injected at a time."""

    __slots__ = ("_current", "_queue", "clock", "cluster", "latency_s", "receiver", "route", "sender", "under_way_B")

    def __init__(
        self,
        cluster: Cluster,
        sender: SimTransport,
        receiver: SimTransport,
        route: Route,
        latency_s: float,
    ) -> None:
        self.cluster = cluster
        self.clock = cluster.loop.clock
        self.sender, self.receiver = sender, receiver
        self.route, self.latency_s = route, latency_s
        self.under_way_B = 0  # injected, not yet delivered
        self._queue: deque[Outgoing] = deque()
        self._current: Outgoing | None = None

    def put(self, outgoing: Outgoing) -> None:
        self._queue.append(outgoing)
        self.pump()

    def waiting(self) -> list[Outgoing]:
        """What has not left yet."""
        return ([self._current] if self._current else []) + list(self._queue)

    def pump(self) -> None:
        """Injects the next message if none is under way and the receiver still reads."""
        while self._current is None and self._queue:
            if self.receiver.mailbox.queued_bytes(self.sender.rank) + self.under_way_B >= self.cluster.inbox_bytes:
                return
            self._current = outgoing = self._queue.popleft()
            if outgoing.body_B:
                outgoing.flow = self.cluster.network.start(self.route, outgoing.body_B, self._injected)
            else:
                self._injected()

    def withdraw(self, outgoing: Outgoing) -> None:
        """A cancelled send: what has not left entirely does not arrive at all."""
        if outgoing is self._current:
            if outgoing.flow is not None:
                self.cluster.network.cancel(outgoing.flow)
            self._current = None
            self.pump()
        elif outgoing in self._queue:
            self._queue.remove(outgoing)

    def break_off(self, error: Callable[[], BaseException]) -> None:
        """One end is gone: nothing more leaves, and whoever waits to send is told."""
        waiting = self.waiting()
        if self._current is not None and self._current.flow is not None:
            self.cluster.network.cancel(self._current.flow)
        self._current = None
        self._queue.clear()
        for outgoing in waiting:
            if outgoing.beside is not None:
                _fail(outgoing.beside, error())
            if not outgoing.injected.done():
                outgoing.injected.set_exception(error())

    def _injected(self) -> None:
        outgoing = self._current
        assert outgoing is not None
        self._current = None
        outgoing.left_s = self.clock._now
        message = outgoing.message
        self.sender.recorder.sent(self.receiver.rank, message.size_bytes)
        if not outgoing.injected.done():
            outgoing.injected.set_result(None)
        if self.latency_s:
            self.under_way_B += message.size_bytes
            self.clock.alarm_at(self.clock._now + self.latency_s, lambda _: self._arrive(message))
        else:
            self.receiver.deliver(message)
        if self._queue:
            self.pump()

    def _arrive(self, message: Message) -> None:
        self.under_way_B -= message.size_bytes
        self.receiver.deliver(message)
        if self._queue:
            self.pump()


class SimTransport:
    """One simulated node: see simcluster.transport.Transport for what every method promises."""

    def __init__(self, cluster: Cluster, rank: int, name: str, device: DeviceModel, recorder: Recorder) -> None:
        self.rank, self.name = rank, name
        self.recorder = recorder
        self.rng = NodeRandom(cluster.seed, name)
        self.mailbox: Mailbox[asyncio.Future[Message]] = Mailbox()
        self.alive = True
        self.on_step: Callable[[int, int], None] | None = None  # (rank, step): for a progress bar
        self._cluster = cluster
        self._loop = cluster.loop
        self._device = device
        self._device_lock = asyncio.Lock()
        self._lost: dict[int, str] = {}  # rank -> why, as this node knows it
        self._untold: list[int] = []  # losses that no recv(ANY) has been told yet
        self._streams: dict[int, Stream] = {}  # by the peer's rank

    @property
    def size(self) -> int:
        return len(self._cluster.nodes)

    @property
    def peers(self) -> list[int]:
        self._catch_up()
        return self._left()

    async def send(self, to: int, tag: str, content: Sendable) -> None:
        start_s = self._loop.clock._now
        if self._has_lost(self._check_peer(to)):
            await asyncio.sleep(0)
            raise self._peer_lost(to)
        stream, outgoing = self._post(to, tag, content)
        try:
            if outgoing.injected.done():
                await asyncio.sleep(0)
                outgoing.injected.result()
            else:
                await outgoing.injected
        except asyncio.CancelledError:
            stream.withdraw(outgoing)
            raise
        self._note_send(start_s, to, outgoing)

    async def exchange(self, to: int, source: int, tag: str, content: Sendable) -> Message:
        """See simcluster.collectives.exchange: here it takes no task."""
        start_s = self._loop.clock._now
        for peer in (to, source):
            if self._has_lost(self._check_peer(peer)):
                await asyncio.sleep(0)
                raise self._peer_lost(peer)
        stream, outgoing = self._post(to, tag, content)
        try:
            message = await self._receive(source, tag, outgoing)
            if not outgoing.injected.done():
                await outgoing.injected
        except BaseException:
            stream.withdraw(outgoing)
            raise
        outgoing.injected.result()
        self._note_send(start_s, to, outgoing)
        return message

    async def recv(self, source: int | Any_ = ANY, tag: str | Any_ = ANY) -> Message:
        if not isinstance(source, Any_):
            self._check_peer(source)
        return await self._receive(source, tag)

    async def compute(self, work: Callable[..., T], *args: Any, cost: Cost, **kwargs: Any) -> T:
        async with self._device_lock:
            start_s = self._loop.time()
            # Run at the start, as a real device would: what changes later is not seen, and cancelling comes too late.
            duration_s = self._device.start(cost, start_s)
            try:
                result = work(*args, **kwargs)
                await asyncio.sleep(duration_s)
            finally:
                self._loop.progress()
                self._device.stop(self._loop.time())
                self.recorder.span("compute", start_s, self._loop.time(), -1, "", 0)
        return result

    def record(self, *, step: int, **metrics: float) -> None:
        self._loop.progress()
        self.recorder.metrics(step, metrics)
        if self.on_step is not None:
            self.on_step(self.rank, step)

    # what the cluster calls

    def deliver(self, message: Message) -> None:
        """A message has arrived. A dead node takes none."""
        if self.alive:
            receiver = self.mailbox.deliver(message)
            while receiver is not None and receiver.done():
                # Cancelled while it waited, and not yet run: the next one is served.
                receiver = self.mailbox.restore(message)
            if receiver is not None:
                receiver.set_result(message)

    def expect_news_of(self, rank: int) -> None:
        """*rank* has just departed: the news is sent here if anybody waits for it."""
        stream = self._streams.get(rank)
        if self.mailbox.waited_for(rank) or (stream is not None and stream.waiting()):
            self._has_lost(rank)

    def break_off(self, error: Callable[[], BaseException]) -> None:
        """Nothing more leaves this node."""
        for stream in self._streams.values():
            stream.break_off(error)

    def waits(self) -> list[str]:
        """What this node waits for, in words."""
        sends = [
            f"send(to={to}, tag={outgoing.message.tag!r}, {outgoing.body_B} B)"
            for to, stream in self._streams.items()
            for outgoing in stream.waiting()
        ]
        return self.mailbox.describe() + sends

    # inside

    def _post(self, to: int, tag: str, content: Sendable) -> tuple[Stream, Outgoing]:
        """Puts a message on its stream."""
        payload = as_payload(content)
        header_B, body_B = sizes_of(tag, payload)
        message = Message(self.rank, tag, freeze(payload), header_B + body_B)
        outgoing = Outgoing(message, body_B, self._loop.create_future())
        stream = self._streams.get(to) or self._stream(to)
        stream.put(outgoing)
        return stream, outgoing

    def _note_send(self, start_s: float, to: int, outgoing: Outgoing) -> None:
        message = outgoing.message
        self.recorder.span("send", start_s, outgoing.left_s, to, message.tag, message.size_bytes)

    async def _receive(self, source: int | Any_, tag: str | Any_, beside: Outgoing | None = None) -> Message:
        clock = self._loop.clock
        start_s = clock._now
        message = self.mailbox.take(source, tag)
        if message is not None:
            await self._yield_holding(message)
            # It was in the inbox: there is room again for those behind it.
            self._cluster.stream(message.source, self.rank).pump()
        else:
            message = await self._wait_for(source, tag, beside)
        self.recorder.received(message.size_bytes)
        self.recorder.span("recv", start_s, clock._now, message.source, message.tag, message.size_bytes)
        return message

    def _stream(self, to: int) -> Stream:
        self._streams[to] = stream = self._cluster.stream(self.rank, to)
        return stream

    def _left(self) -> list[int]:
        return [rank for rank in range(self.size) if rank != self.rank and rank not in self._lost]

    def _has_lost(self, rank: int) -> bool:
        """Whether this node knows that *rank* is gone. News that is still under way is now waited for."""
        if rank in self._lost:
            return True
        departure = self._cluster.departed.get(rank)
        if departure is None:
            return False
        news_s = departure.time_s + self._cluster.stream(rank, self.rank).latency_s
        clock = self._loop.clock
        if news_s < clock._now:
            self._lose(rank, departure)
            return True
        # Even at this very moment: what *rank* sent before it left may be about to arrive.
        clock.alarm_at(news_s, lambda _: self._lose(rank, departure))
        return False

    def _catch_up(self) -> None:
        """Hears of everyone who has departed."""
        departed = self._cluster.departed
        unheard = [rank for rank in departed if rank != self.rank and rank not in self._lost]
        when = {rank: departed[rank].time_s + self._cluster.stream(rank, self.rank).latency_s for rank in unheard}
        for rank in sorted(unheard, key=when.__getitem__):
            self._has_lost(rank)

    def _lose(self, rank: int, departure: Departure) -> None:
        """From now on *rank* is gone for this node, and whoever waits for it is told."""
        if rank in self._lost or not self.alive:
            return
        self._lost[rank] = departure.reason
        stream = self._streams.get(rank)
        if stream is not None:
            stream.break_off(lambda: self._peer_lost(rank))
        for receiver in self.mailbox.waiting_for(rank):
            _fail(receiver, self._peer_lost(rank))
        if departure.tell_any:
            self._untold.append(rank)
        self._tell_any()

    def _tell_any(self) -> None:
        while self._untold or not self._left():
            receiver = self.mailbox.first_waiting_for_any()
            if receiver is None:
                return
            if not receiver.done():
                _fail(receiver, self._loss_for_any())

    def _loss_for_any(self) -> PeerLost:
        """The next loss to tell, or, when nobody is left, the last one again."""
        return self._peer_lost(self._untold.pop(0) if self._untold else next(reversed(self._lost)))

    async def _yield_holding(self, message: Message) -> None:
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self._give_back(message)
            raise

    async def _wait_for(self, source: int | Any_, tag: str | Any_, beside: Outgoing | None) -> Message:
        if isinstance(source, Any_):
            self._catch_up()
            if self._untold or not (self._left() or self.size == 1):
                await asyncio.sleep(0)
                raise self._loss_for_any()
        elif self._has_lost(source):
            await asyncio.sleep(0)
            raise self._peer_lost(source)
        receiver: asyncio.Future[Message] = self._loop.create_future()
        self.mailbox.wait(source, tag, receiver)
        if beside is not None:
            beside.beside = receiver
        try:
            return await receiver
        except PeerLost:
            self.mailbox.withdraw(receiver)
            raise
        except asyncio.CancelledError:
            if not receiver.done() or receiver.cancelled():
                self.mailbox.withdraw(receiver)
            elif receiver.exception() is None:
                self._give_back(receiver.result())
            elif isinstance(source, Any_) and isinstance(lost := receiver.exception(), PeerLost):
                self._untold.insert(0, lost.rank)
                self._tell_any()
            raise

    def _give_back(self, message: Message) -> None:
        receiver = self.mailbox.restore(message)
        while receiver is not None and receiver.done():
            receiver = self.mailbox.restore(message)
        if receiver is not None:
            receiver.set_result(message)

    def _check_peer(self, rank: int) -> int:
        if not 0 <= rank < self.size or rank == self.rank:
            raise ValueError(
                f"rank {rank} is no peer of rank {self.rank}: expected 0 to {self.size - 1} without {self.rank}"
            )
        return rank

    def _peer_lost(self, rank: int) -> PeerLost:
        return PeerLost(rank, self._cluster.nodes[rank].name, self._lost.get(rank, ""))


def _fail(receiver: asyncio.Future[Message], error: BaseException) -> None:
    if not receiver.done():
        receiver.set_exception(error)
