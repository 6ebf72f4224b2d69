"""The transport interface in virtual time: streams to the other nodes, a mailbox, a device.

This file knows one cluster of simulated nodes in one loop. It must not know algorithms, files or sockets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from backends.sim.ahead import Entry
from backends.sim.stream import Beside, Outgoing
from simcluster.errors import ENDED
from simcluster.inbox import Inbox
from simcluster.misuse import check_work
from simcluster.payload import Message, Sendable, as_payload, freeze, sizes_of
from simcluster.rng import NodeRandom
from simcluster.transport import ANY, Any_, Cost

if TYPE_CHECKING:
    from torch import Tensor

    from backends.sim.cluster import Cluster
    from backends.sim.devices import DeviceModel
    from backends.sim.stream import Stream
    from simcluster.results.record import Recorder

T = TypeVar("T")


class Departure(NamedTuple):
    """A node's end, good if its reason is ENDED, which peers hear of one latency later."""

    time_s: float
    reason: str


class SimTransport:
    """One simulated node: see simcluster.transport.Transport for what every method promises."""

    def __init__(self, cluster: Cluster, rank: int, device: DeviceModel, recorder: Recorder) -> None:
        names = cluster.topology.workers
        self.rank, self.size, self.name = rank, len(names), names[rank]
        self.recorder = recorder
        self.rng = NodeRandom(cluster.seed, self.name)
        self.inbox = Inbox(rank, names, cluster.loop, self._make_room, self._listen)
        self.alive = True
        self.on_step: Callable[[int, int], None] | None = None  # (rank, step): for a progress bar
        self._cluster = cluster
        self._loop = cluster.loop
        self._device = device
        self._device_lock = asyncio.Lock()
        self._streams: dict[int, Stream] = {}  # by the peer's rank

    @property
    def peers(self) -> list[int]:
        self._listen(ANY)
        return self.inbox.peers

    async def send(self, to: int, tag: str, content: Sendable) -> None:
        start_s = self._loop.clock._now
        self.inbox.check_peer(to)
        if to in self._cluster.departed:
            await self._refuse_if_dead(to)
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
        self.inbox.check_peer(to)
        if to in self._cluster.departed:
            await self._refuse_if_dead(to)
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

    async def ring_ahead(self, vector: Tensor, lengths: Sequence[int], tag_of: Callable[[int], str]) -> int:
        """See simcluster.collectives.ring: how many of its rounds are over already when this returns."""
        return await self._cluster.ring.enter(self, Entry(vector, lengths, tag_of))

    async def recv(self, source: int | Any_ = ANY, tag: str | Any_ = ANY) -> Message:
        return await self._receive(source, tag)

    async def compute(self, work: Callable[..., T], *args: Any, cost: Cost, **kwargs: Any) -> T:
        check_work(work, cost)
        async with self._device_lock:
            start_s = self._loop.time()
            # Run at the start, as a real device would: what changes later is not seen, and cancelling comes too late.
            duration_s = self._device.start(cost, start_s)
            try:
                piece = self._loop.workers.begin(self, partial(work, *args, **kwargs), cost.flops)
                await asyncio.sleep(duration_s)
            finally:
                self._loop.progress()
                self._device.stop(self._loop.time())
                self.recorder.span("compute", start_s, self._loop.time(), -1, "", 0)
        return piece.result()

    def record(self, *, step: int, **metrics: float) -> None:
        self._loop.progress()
        self.recorder.metrics(step, metrics)
        if self.on_step is not None:
            self.on_step(self.rank, step)

    # what the cluster calls

    def die(self) -> None:
        """Nothing reaches this node any more."""
        self.alive = False
        self.inbox.close()

    def expect_news_of(self, rank: int) -> None:
        """*rank* has just departed: the news is sent here if anybody waits for it."""
        stream = self._streams.get(rank)
        blocked = stream is not None and stream.waiting()
        if self.inbox.mailbox.waited_for(rank) or blocked:
            self._hear_of(rank)
        if stream is not None and blocked and self._cluster.departed[rank].reason == ENDED:
            stream.pump()  # what still comes is taken there, and dropped

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
        return self.inbox.mailbox.describe() + sends

    # inside

    def _make_room(self, source: int) -> None:
        self._cluster.stream(source, self.rank).pump()

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

    async def _receive(self, source: int | Any_, tag: str | Any_, beside: Beside | None = None) -> Message:
        clock = self._loop.clock
        start_s = clock._now
        message = await self.inbox.take(source, tag, beside.wait_beside if beside is not None else None)
        self.recorder.received(message.size_bytes)
        self.recorder.span("recv", start_s, clock._now, message.source, message.tag, message.size_bytes)
        return message

    def _stream(self, to: int) -> Stream:
        self._streams[to] = stream = self._cluster.stream(self.rank, to)
        return stream

    def _listen(self, source: int | Any_) -> None:
        """Hears of *source*'s departure, or for ANY of all there are, if the news is here."""
        if not self._cluster.departed:
            return
        if not isinstance(source, Any_):
            self._hear_of(source)
            return
        departed = self._cluster.departed
        unheard = [rank for rank in departed if rank != self.rank and rank not in self.inbox.lost]
        for rank in sorted(unheard, key=self._news_s):
            self._hear_of(rank)

    def _hear_of(self, rank: int) -> None:
        """If *rank* has departed, it is lost, or will be when the news is here."""
        departure = self._cluster.departed.get(rank)
        if departure is None or rank in self.inbox.lost:
            return
        news_s = self._news_s(rank)
        if news_s < self._loop.clock._now:
            self._lose(rank, departure.reason)
        else:
            # Even at this very moment: what *rank* sent before it left may be about to arrive.
            self._loop.clock.alarm_at(news_s, lambda _: self._lose(rank, departure.reason))

    def _news_s(self, rank: int) -> float:
        """When this node hears that *rank* has departed: a process's end travels as its messages do."""
        return self._cluster.departed[rank].time_s + self._cluster.stream(rank, self.rank).latency_s

    def _lose(self, rank: int, reason: str) -> None:
        """Whoever waits for *rank* is told. One that ended well still takes what it is sent."""
        if self._cluster.stream(rank, self.rank).when_silent(lambda: self._lose(rank, reason)):
            return
        if self.alive and self.inbox.lose(rank, reason) and reason != ENDED and rank in self._streams:
            self._streams[rank].break_off(lambda: self.inbox.error(rank))

    async def _refuse_if_dead(self, to: int) -> None:
        """Raises PeerLost if *to* is known to have died."""
        self._hear_of(to)
        if self.inbox.died(to):
            await asyncio.sleep(0)
            raise self.inbox.error(to)
