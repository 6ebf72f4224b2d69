"""One node of a simulated cluster: its life, its streams, and what it knows of the other nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from simcluster.errors import ENDED, PeerLost
from simcluster.transport import ANY, Any_
from simcluster_backends.common.inbox import Inbox
from simcluster_backends.sim.devices import DeviceLock
from simcluster_backends.sim.outgoing import SendBuffer
from simcluster_backends.sim.rendezvous import Rendezvous

if TYPE_CHECKING:
    from simcluster.fault_plans.kinds import Fault
    from simcluster.runs.recorder import Recorder
    from simcluster_backends.common.inbox import Waiting
    from simcluster_backends.sim.devices import DeviceModel
    from simcluster_backends.sim.loop.event_loop import SimLoop
    from simcluster_backends.sim.membership import Departure, SimMembership
    from simcluster_backends.sim.network.cores import Cores
    from simcluster_backends.sim.stream import Stream
    from simcluster_backends.sim.streams import Streams


class SimMember:
    """One incarnation of a node. An algorithm gets only its transport and cannot reach into it."""

    def __init__(
        self,
        rank: int,
        names: Sequence[str],
        loop: SimLoop,
        streams: Streams,
        membership: SimMembership,
        device: DeviceModel,
        recorder: Recorder,
        send_buffer_bytes: int | None,
        cores: Cores | None,
    ) -> None:
        self.rank, self.name, self.names = rank, names[rank], names
        self.loop, self.device, self.recorder, self.cores = loop, device, recorder, cores
        self.rendezvous = None if streams.limit_B else Rendezvous()  # accepts only what it has asked for
        ask = self.rendezvous.ask if self.rendezvous is not None else None
        self.inbox = Inbox(rank, names, loop, self._on_room, self._about_to_wait, self._on_told, self.known, ask)
        self.buffer = SendBuffer(send_buffer_bytes) if send_buffer_bytes else None
        self.alive = True
        self.born_s = loop.time()
        self.rested = False  # it began only when it was first sent a message
        self.killed_by: Fault | None = None
        self.hung = 0  # by how many faults
        self.device_lock = DeviceLock()
        self.on_step: Callable[[int, int], None] | None = None  # (rank, step): for a progress bar
        self.membership, self._registry = membership, streams
        self._streams: dict[int, Stream] = {}  # by the peer's rank
        # The incarnation in use of each peer, if not the first.
        self._known = {rank: len(before) for rank, before in membership.before.items()}
        self._back: dict[int, int] = {}  # peers known to be back but not accepted yet
        self._unheard: dict[int, None] = {}  # peers of which there may be news
        self._departures = 0  # how many of the membership's are in it
        self._expected: set[tuple[int, int, float]] = set()  # news that an alarm brings: (peer, incarnation, time)
        self._announced: set[int] = set()  # peers with such news, until they are back

    def die(self, fault: Fault | None = None) -> None:
        """Stop receiving."""
        self.alive, self.killed_by = False, fault
        self.inbox.close()

    def freeze(self) -> None:
        """Stop as on SIGSTOP; incoming messages wait."""
        self.hung += 1
        self.loop.frozen.freeze(self)

    def thaw(self) -> None:
        """Resume unless another fault still stops it."""
        self.hung -= 1
        if not self.hung:
            self.loop.frozen.thaw(self)
            for stream in self._streams.values():
                stream.pump()

    def break_off(self, error: Callable[[], BaseException]) -> None:
        """Stop sending."""
        for stream in self._streams.values():
            stream.break_off(error)

    def waits(self) -> list[str]:
        """Return descriptions of what it waits for."""
        sends = [
            f"send(to={to}, tag={outgoing.message.tag!r}, {outgoing.body_B} B)"
            for to, stream in self._streams.items()
            for outgoing in stream.waiting()
        ]
        return self.inbox.mailbox.describe() + sends

    def stream(self, to: int) -> Stream:
        """Return the stream to the incarnation of *to* in use here."""
        stream = self._streams.get(to)
        if stream is None:
            stream = self._streams[to] = self._registry.to_incarnation(self.rank, to, self.known(to))
        return stream

    def pump(self, rank: int) -> None:
        """Send what waits for *rank*, which has room again."""
        if rank in self._streams:
            self._streams[rank].pump()

    def _on_room(self, source: int) -> None:
        self._registry.of(source, self.rank).pump()

    @property
    def is_simple(self) -> bool:
        """Whether messages leave and arrive without anything to ask or to look for: no news, gate, or send buffer."""
        registry = self._registry
        return not (self.membership.has_news or registry.gated or self.buffer or self.rendezvous)

    def wait_quietly(self, source: int, tag: str, receiver: Waiting) -> bool:
        """Let *receiver* wait, if a `recv` of this node, which was simple, would do no more; else return False."""
        mailbox = self.inbox.mailbox
        if self.membership.has_news or mailbox.has(source, tag):
            return False
        mailbox.wait(source, tag, receiver)
        return True

    def known(self, rank: int) -> int:
        """Return the incarnation of *rank* in use here."""
        return self._known.get(rank, 0)

    def look_around(self) -> None:
        """Check a new cut against every peer that anything here waits for."""
        for source in self.inbox.mailbox.awaited():
            self.listen(source)
        for rank, stream in list(self._streams.items()):
            if stream.waiting():
                self._hear_of(rank)
                if (cut := self._cut_off_from(rank)) is not None:
                    self.loop.clock.alarm_at(cut.time_s, stream.break_off, partial(self._out_of_reach, rank, cut))

    def expect_news_of(self, rank: int) -> None:
        """Learn of *rank*'s departure in time if anything here waits for *rank*, and of the next one."""
        awaited, gated = self.inbox.mailbox.awaited(), self._registry.gated
        for source in awaited:
            self.membership.listens(self.rank, source)
        waits_for_any = ANY in awaited and self.membership.concerns_any(gated)
        if rank in awaited or (gated and waits_for_any) or (rank in self._streams and self._streams[rank].waiting()):
            self._hear_of(rank)
        elif waits_for_any:
            self.listen()  # earlier ones, too

    def welcome(self, rank: int, incarnation: int) -> None:
        """Note that *rank* has returned as *incarnation*."""
        self._back[rank] = incarnation
        self._hear_of(rank)
        self._accept(rank)

    def listen(self, source: int | Any_ = ANY) -> None:
        """Learn of the departure of *source*, or with ANY of all departures, if the news has arrived."""
        if not self.membership.has_news:
            return
        for rank in list(self._back):
            self._accept(rank)
        if not isinstance(source, Any_):
            self._hear_of(source)
            return
        suspects, self._departures = self.membership.suspects(self._departures)
        self._unheard.update(dict.fromkeys(suspects))
        # News for which an alarm is set is not looked for again, except where faults may change when it arrives.
        known = self._announced if not self._registry.gated else ()
        self._unheard = {rank: None for rank in self._unheard if rank not in self.inbox.lost and rank not in known}
        unheard = [(news.time_s, rank) for rank in self._unheard for news in self._news(rank)]
        for _, rank in sorted(unheard):
            self._hear_of(rank)

    def _about_to_wait(self, source: int | Any_) -> None:
        if self.membership.has_news:
            self.membership.listens(self.rank, source)
            if not isinstance(source, Any_) or self.membership.concerns_any(self._registry.gated):
                self.listen(source)

    async def check_reach(self, to: int) -> None:
        """Raise PeerLost if *to* is known to have died, or to be out of reach."""
        if not self.alive:
            raise asyncio.CancelledError  # the dead send nothing
        self._accept(to)
        self._hear_of(to)
        if self.inbox.died(to):
            await asyncio.sleep(0)
            raise self.inbox.error(to)
        if (cut := self._cut_off_from(to)) is not None:
            await asyncio.sleep(max(0.0, cut.time_s - self.loop.clock._now))
            raise self._out_of_reach(to, cut)

    def _news(self, rank: int) -> list[Departure]:
        """Return the news of *rank*, unless it is lost here already."""
        known = rank == self.rank or rank in self.inbox.lost
        return [] if known else self.membership.of(rank, self.rank, self.known(rank))

    def _hear_of(self, rank: int) -> None:
        """If *rank* has departed, lose it now or when the news arrives."""
        known, now_s = self.known(rank), self.loop.clock._now
        for news in self._news(rank):
            if news.time_s < now_s or (news.cut is not None and news.time_s == now_s):
                self._lose(rank, known, news)
            elif news.cut is not None or (rank, known, news.time_s) not in self._expected:
                if news.cut is None:
                    self._expected.add((rank, known, news.time_s))
                    self._announced.add(rank)
                # Even at this very instant: what *rank* sent before it left may be about to arrive.
                self.loop.clock.alarm_at(news.time_s, partial(self._lose, rank, known), news)

    def _cut_off_from(self, rank: int) -> Departure | None:
        """Return the cut between this node and *rank*, if *rank* has ended well and can no longer drain sends."""
        if self.inbox.lost.get(rank) != ENDED:
            return None
        news = self.membership.of(rank, self.rank, self.known(rank))
        return next((item for item in news if item.cut is not None), None)

    def _out_of_reach(self, rank: int, cut: Departure) -> PeerLost:
        return PeerLost(rank, self.names[rank], cut.reason, self.known(rank))

    def _lose(self, rank: int, known: int, news: Departure) -> None:
        """Fail all waits for *rank*. A peer that ended well still accepts what it is sent."""
        if not self.alive or known != self.known(rank):
            return  # old news
        if news.cut is not None:
            self._registry.of(rank, self.rank).transit.break_for(news.cut)
        elif self.membership.incarnation(rank) == known:
            incoming = self._registry.if_used(rank, self.rank)
            if incoming is not None and incoming.transit.when_silent(partial(self._lose, rank, known, news)):
                return
        if self.inbox.lose(rank, news.reason) and news.reason != ENDED and rank in self._streams:
            self._streams[rank].break_off(lambda: self.inbox.error(rank))

    def _on_told(self, rank: int) -> None:
        if rank in self._back:
            # Not immediately: the caller that is learning of the end must hear of it first.
            self.loop.clock.alarm_at(self.loop.clock._now, self._accept, rank)

    def _accept(self, rank: int) -> None:
        """Switch to the new incarnation of *rank* once the end of the previous one has been raised here.

        An incarnation that has already ended is skipped: news of the next one is on its way.
        """
        if self._back.get(rank) == self.membership.incarnation(rank) and self.alive and self.inbox.has_told(rank):
            self._known[rank] = self._back.pop(rank)
            self._streams.pop(rank, None)
            self._announced.discard(rank)
            self.inbox.found(rank)
            self._unheard[rank] = None
            self._registry.accept(rank, self.rank)
            if rank in self.membership.departed:  # again, before the news of its return had come here
                self.expect_news_of(rank)
