"""The transport interface in virtual time: streams to the other nodes, a mailbox, a device.

This file knows one cluster of simulated nodes in one loop. It must not know algorithms, files or sockets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from backends.common.arguments import check_work
from backends.common.inbox import Inbox
from backends.sim.lookahead import Entry
from backends.sim.loop.workers import LEAST_FLOPS
from backends.sim.sendbuffer import SendBuffer
from backends.sim.stream import Beside, Outgoing
from simcluster.errors import ENDED, PeerLost
from simcluster.payload import Message, Sendable, as_payload, freeze, sizes_of
from simcluster.rng import NodeRandom
from simcluster.transport import ANY, Any_, Cost
from simcluster.workloads import Replica

if TYPE_CHECKING:
    from torch import Tensor

    from backends.sim.cluster import Cluster
    from backends.sim.devices import DeviceModel
    from backends.sim.membership import Item
    from backends.sim.stream import Stream
    from simcluster.fault_plans.kinds import Fault
    from simcluster.runs.record import Recorder

T = TypeVar("T")


class SimTransport:
    """One simulated node: see simcluster.transport.Transport for what every method promises."""

    def __init__(self, cluster: Cluster, rank: int, device: DeviceModel, recorder: Recorder) -> None:
        names = cluster.topology.workers
        self.rank, self.size, self.name = rank, len(names), names[rank]
        self.recorder = recorder
        self.rng = NodeRandom(cluster.seed, self.name)
        self.inbox = Inbox(rank, names, cluster.loop, self._make_room, self._listen, self._told, self.known)
        self.device = device
        buffer_bytes = cluster.topology.nodes[self.name].send_buffer_bytes
        self.buffer = SendBuffer(buffer_bytes) if buffer_bytes else None
        self.alive = True
        self.born_s = cluster.loop.time()
        self.killed_by: Fault | None = None
        self.hung = 0  # by how many faults
        self.on_step: Callable[[int, int], None] | None = None  # (rank, step): for a progress bar
        self._cluster = cluster
        self._loop = cluster.loop
        self._device_lock = asyncio.Lock()
        self._streams: dict[int, Stream] = {}  # by the peer's rank
        self._known: dict[int, int] = {}  # which incarnation of a peer it deals with, if not the first
        self._back: dict[int, int] = {}  # peers of whom it has heard that they are back, not yet dealt with

    @property
    def peers(self) -> list[int]:
        self._listen(ANY)
        return self.inbox.peers

    @property
    def computing(self) -> bool:
        """Whether its device works."""
        return self._device_lock.locked()

    async def send(self, to: int, tag: str, content: Sendable) -> None:
        start_s = self._loop.clock._now
        self.inbox.check_peer(to)
        if self._cluster.news.is_any:
            await self._refuse_if_dead(to)
        stream, outgoing = self._post(to, tag, content)
        if self.buffer is not None and self.buffer.take(to, outgoing):
            self._note_send(start_s, to, outgoing, start_s)
            await asyncio.sleep(0)
            return
        try:
            if outgoing.injected.done():
                await asyncio.sleep(0)
                outgoing.injected.result()
            else:
                await outgoing.injected
        except asyncio.CancelledError:
            stream.withdraw(outgoing)
            raise
        self._note_send(start_s, to, outgoing, outgoing.left_s)

    async def exchange(self, to: int, source: int, tag: str, content: Sendable) -> Message:
        """See simcluster.collectives.exchange: here it takes no task."""
        start_s = self._loop.clock._now
        self.inbox.check_peer(to)
        if self._cluster.news.is_any:
            await self._refuse_if_dead(to)
        stream, outgoing = self._post(to, tag, content)
        if self.buffer is not None and self.buffer.take(to, outgoing):
            self._note_send(start_s, to, outgoing, start_s)
            return await self._receive(source, tag)
        try:
            message = await self._receive(source, tag, outgoing)
            if not outgoing.injected.done():
                await outgoing.injected
        except BaseException:
            stream.withdraw(outgoing)
            if outgoing.injected.done() and not outgoing.injected.cancelled():
                outgoing.injected.exception()  # it may have failed for the same reason, which is told once
            raise
        outgoing.injected.result()
        self._note_send(start_s, to, outgoing, outgoing.left_s)
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
            duration_s = self.device.start(cost, start_s)
            try:
                hand_over = cost.flops >= LEAST_FLOPS and _is_of_a_replica(work)
                piece = self._loop.workers.begin(self, partial(work, *args, **kwargs), hand_over=hand_over)
                await asyncio.sleep(duration_s)
            finally:
                self._loop.progress()
                self.device.stop(self._loop.time())
                self.recorder.span("compute", start_s, self._loop.time(), -1, "", 0)
        return piece.result()

    def record(self, *, step: int, **metrics: float) -> None:
        self._loop.progress()
        self.recorder.metrics(step, metrics)
        if self.on_step is not None:
            self.on_step(self.rank, step)

    # what the cluster calls

    def die(self, fault: Fault | None = None) -> None:
        """Nothing reaches this node any more."""
        self.alive, self.killed_by = False, fault
        self.inbox.close()

    def freeze(self) -> None:
        """Stops doing anything, as a stopped process does; what reaches it waits."""
        self.hung += 1
        self._loop.frozen.freeze(self)

    def thaw(self) -> None:
        """Goes on, if nothing else stops it."""
        self.hung -= 1
        if not self.hung:
            self._loop.frozen.thaw(self)
            for stream in self._streams.values():
                stream.pump()

    def known(self, rank: int) -> int:
        """The incarnation of *rank* that this node deals with."""
        return self._known.get(rank, 0)

    def knows(self, incarnations: Mapping[int, int]) -> None:
        """It is new itself, and deals with these."""
        self._known.update(incarnations)

    def look_around(self) -> None:
        """There is news: it is sent here if anybody waits for whom it is about."""
        for source in self.inbox.mailbox.awaited():
            self._listen(source)
        for rank, stream in list(self._streams.items()):
            if stream.waiting():
                self._hear_of(rank)
                if (cut := self._cut_off_from(rank)) is not None:
                    self._loop.clock.alarm_at(cut.time_s, stream.break_off, partial(self._out_of_reach, rank, cut))

    def expect_news_of(self, rank: int) -> None:
        """*rank* has just departed: the news is sent here if anybody waits for it."""
        if self.inbox.mailbox.waited_for(rank) or (rank in self._streams and self._streams[rank].waiting()):
            self._hear_of(rank)

    def pump(self, rank: int) -> None:
        """*rank* has room again for what waits to be sent to it."""
        if rank in self._streams:
            self._streams[rank].pump()

    def welcome(self, rank: int, incarnation: int) -> None:
        """The news is here that *rank* has come back as *incarnation*."""
        self._back[rank] = incarnation
        self._hear_of(rank)
        self._accept(rank)

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
        life = self.recorder.incarnation
        message = Message(self.rank, tag, freeze(payload), header_B + body_B, incarnation=life)
        outgoing = Outgoing(message, body_B, self._loop.create_future())
        stream = self._streams.get(to) or self._stream(to)
        stream.put(outgoing)
        return stream, outgoing

    def _note_send(self, start_s: float, to: int, outgoing: Outgoing, end_s: float) -> None:
        message = outgoing.message
        self.recorder.span("send", start_s, end_s, to, message.tag, message.size_bytes)

    async def _receive(self, source: int | Any_, tag: str | Any_, beside: Beside | None = None) -> Message:
        clock = self._loop.clock
        start_s = clock._now
        message = await self.inbox.take(source, tag, beside.wait_beside if beside is not None else None)
        self.recorder.received(message.size_bytes)
        self.recorder.span("recv", start_s, clock._now, message.source, message.tag, message.size_bytes)
        return message

    def _stream(self, to: int) -> Stream:
        cluster, known = self._cluster, self.known(to)
        is_present = known == cluster.news.incarnation(to)
        stream = cluster.stream(self.rank, to) if is_present else cluster.stream_to_former(self.rank, to, known)
        self._streams[to] = stream
        return stream

    def _listen(self, source: int | Any_) -> None:
        """Hears of *source*'s departure, or for ANY of all there are, if the news is here."""
        news = self._cluster.news
        if not news.is_any:
            return
        for rank in list(self._back):
            self._accept(rank)
        if not isinstance(source, Any_):
            self._hear_of(source)
            return
        unheard = [
            (item.time_s, rank) for rank in news.suspects() if self._may_lose(rank) for item in news.of(rank, self)
        ]
        for _, rank in sorted(unheard):
            self._hear_of(rank)

    def _may_lose(self, rank: int) -> bool:
        return rank != self.rank and rank not in self.inbox.lost

    def _hear_of(self, rank: int) -> None:
        """If *rank* has departed, it is lost, or will be when the news is here."""
        if self._may_lose(rank):
            for item in self._cluster.news.of(rank, self):
                self._hear(rank, item)

    def _cut_off_from(self, rank: int) -> Item | None:
        """Return the cut between this node and *rank*, if *rank* has ended well and can no longer drain sends."""
        if self.inbox.lost.get(rank) != ENDED:
            return None
        return next((item for item in self._cluster.news.of(rank, self) if item.cut is not None), None)

    def _out_of_reach(self, rank: int, cut: Item) -> PeerLost:
        return PeerLost(rank, self._cluster.nodes[rank].name, cut.reason, self.known(rank))

    def _hear(self, rank: int, item: Item) -> None:
        known, now_s = self.known(rank), self._loop.clock._now
        if item.time_s < now_s or (item.cut is not None and item.time_s == now_s):
            self._lose(rank, item, known)
        else:
            # Even at this very moment: what *rank* sent before it left may be about to arrive.
            self._loop.clock.alarm_at(item.time_s, lambda _: self._lose(rank, item, known))

    def _lose(self, rank: int, item: Item, known: int) -> None:
        """Whoever waits for *rank* is told. One that ended well still takes what it is sent."""
        if not self.alive or known != self.known(rank):
            return  # old news
        if item.cut is not None:
            self._cluster.break_way(rank, self.rank, item.cut)
        elif self._cluster.news.incarnation(rank) == known:
            incoming = self._cluster.stream(rank, self.rank)
            if incoming.when_silent(lambda: self._lose(rank, item, known)):
                return
        if self.inbox.lose(rank, item.reason) and item.reason != ENDED and rank in self._streams:
            self._streams[rank].break_off(lambda: self.inbox.error(rank))

    def _told(self, rank: int) -> None:
        if rank in self._back:
            # Not at once: whoever is being told of its end is told first.
            self._loop.clock.alarm_at(self._loop.clock._now, self._accept, rank)

    def _accept(self, rank: int) -> None:
        """Deals with the new incarnation of *rank* once the end of the one before has been told here.

        One that is over by then is skipped: the news of the next one is on its way.
        """
        if self._back.get(rank) == self._cluster.news.incarnation(rank) and self.alive and self.inbox.has_told(rank):
            self._known[rank] = self._back.pop(rank)
            self._streams.pop(rank, None)
            self.inbox.found(rank)
            self._cluster.accept(rank, self.rank)

    async def _refuse_if_dead(self, to: int) -> None:
        """Raises PeerLost if *to* is known to have died."""
        if not self.alive:
            raise asyncio.CancelledError  # the dead send nothing
        self._accept(to)
        self._hear_of(to)
        if self.inbox.died(to):
            await asyncio.sleep(0)
            raise self.inbox.error(to)
        if (cut := self._cut_off_from(to)) is not None:
            await asyncio.sleep(max(0.0, cut.time_s - self._loop.clock._now))
            raise self._out_of_reach(to, cut)


def _is_of_a_replica(work: Callable[..., Any]) -> bool:
    """Whether *work* may run beside that of other nodes: of other functions nobody knows what they share."""
    replica = getattr(work, "__self__", None)
    return isinstance(replica, Replica) and replica.computes
