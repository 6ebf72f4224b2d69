"""One node of a simulated cluster: its life, its streams, and its knowledge of the other nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from simcluster.errors import ENDED, PeerLost
from simcluster.transport import ANY, Any_
from simcluster_backends.common.inbox import Inbox
from simcluster_backends.sim.outgoing import SendBuffer
from simcluster_backends.sim.rendezvous import Rendezvous

if TYPE_CHECKING:
    from simcluster.fault_plans.kinds import Fault
    from simcluster.runs.recorder import Recorder
    from simcluster_backends.sim.devices import DeviceModel
    from simcluster_backends.sim.loop.event_loop import SimLoop
    from simcluster_backends.sim.membership import Departure, SimMembership
    from simcluster_backends.sim.network.cores import Cores
    from simcluster_backends.sim.stream import Stream
    from simcluster_backends.sim.streams import Streams


class PeerStreams(dict[int, "Stream"]):
    """The outgoing streams of a node, by rank: each leads to the incarnation that the node knows.

    *make* makes the stream to a rank when it is first used.
    """

    def __init__(self, make: Callable[[int], Stream]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, to: int) -> Stream:
        stream = self[to] = self._make(to)
        return stream


class SimMember:
    """One incarnation of a node. An algorithm sees only the transport, not this object."""

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
        self.rank = rank
        self.name = names[rank]
        self.names = names
        self.loop = loop
        self.device = device
        self.recorder = recorder
        self.cores = cores
        # Without room in the inbox, the node accepts only messages that it waits for.
        self.rendezvous = None if streams.limit_B else Rendezvous()
        ask = self.rendezvous.ask if self.rendezvous is not None else None
        self.inbox = Inbox(
            rank, names, loop, self._on_room, self._about_to_wait, self._on_told, self.known, ask, membership
        )
        self.buffer = SendBuffer(send_buffer_bytes) if send_buffer_bytes else None
        self.alive = True
        self.born_s = loop.time()
        self.rested = False  # whether it began only when it was first sent a message
        self.killed_by: Fault | None = None
        self.hung = 0  # the number of faults that stop it now
        self.device_lock = asyncio.Lock()
        self.on_step: Callable[[int, int], None] | None = None  # called with (rank, step)
        self.membership = membership
        self._registry = streams
        self.streams = PeerStreams(self._first_stream)
        # The incarnation of each peer that this node uses, if it is not the first.
        self._known = {rank: len(before) for rank, before in membership.before.items()}
        self._back: dict[int, int] = {}  # peers that have returned and are not accepted yet
        self._unheard: dict[int, None] = {}  # peers about which there may be news
        self._departures = 0  # the number of departures that _unheard covers
        # News for which an alarm is set: (peer, incarnation, time).
        self._expected: set[tuple[int, int, float]] = set()
        self._announced: set[int] = set()  # peers with such news, until they return

    def die(self, fault: Fault | None = None) -> None:
        """Mark the node as dead, killed by *fault* if any: it receives nothing more."""
        self.alive, self.killed_by = False, fault
        self.inbox.close()

    def freeze(self) -> None:
        """Stop the node as SIGSTOP does; incoming messages wait."""
        self.hung += 1
        self.loop.frozen.freeze(self)

    def thaw(self) -> None:
        """Resume the node, unless another fault still stops it."""
        self.hung -= 1
        if not self.hung:
            self.loop.frozen.thaw(self)
            for stream in self.streams.values():
                stream.pump()

    def break_off(self, error: Callable[[], BaseException]) -> None:
        """Break all outgoing streams: waiting senders get *error*."""
        for stream in self.streams.values():
            stream.break_off(error)

    def waits(self) -> list[str]:
        """Describe the receives and sends that the node waits for."""
        sends = [
            f"send(to={to}, tag={outgoing.message.tag!r}, {outgoing.body_B} B)"
            for to, stream in self.streams.items()
            for outgoing in stream.waiting()
        ]
        return self.inbox.mailbox.describe() + sends

    def _first_stream(self, to: int) -> Stream:
        return self._registry.to_incarnation(self.rank, to, self.known(to))

    def pump(self, rank: int) -> None:
        """Send the messages that wait for *rank*, which accepts messages again."""
        if rank in self.streams:
            self.streams[rank].pump()

    def _on_room(self, source: int) -> None:
        self._registry.of(source, self.rank).pump()

    def known(self, rank: int) -> int:
        """Return the incarnation of *rank* that this node uses."""
        return self._known.get(rank, 0)

    def look_around(self) -> None:
        """After a new network cut, look for news of every peer that a receive or send waits for."""
        for source in self.inbox.mailbox.awaited():
            self.listen(source)
        for rank, stream in list(self.streams.items()):
            if stream.waiting():
                self._hear_of(rank)
                if (cut := self._cut_off_from(rank)) is not None:
                    self.loop.clock.alarm_at(cut.time_s, stream.break_off, partial(self._out_of_reach, rank, cut))

    def expect_news_of(self, rank: int) -> None:
        """Prepare for the news of *rank*'s departure, if a receive or send here waits for *rank*.

        Also register for the next departure of each source that a receive waits for.
        """
        awaited, gated = self.inbox.mailbox.awaited(), self._registry.gated
        for source in awaited:
            self.membership.listens(self.rank, source)
        waits_for_any = ANY in awaited and self.membership.concerns_any(gated)
        if rank in awaited or (gated and waits_for_any) or (rank in self.streams and self.streams[rank].waiting()):
            self._hear_of(rank)
        elif waits_for_any:
            self.listen()  # earlier departures matter to a recv(ANY), too

    def welcome(self, rank: int, incarnation: int) -> None:
        """Note that *rank* has returned as *incarnation*."""
        self._back[rank] = incarnation
        self._hear_of(rank)
        self._accept(rank)

    def listen(self, source: int | Any_ = ANY) -> None:
        """Learn of the departure of *source* (ANY: of any rank), now or when the news arrives."""
        if not self.membership.has_news:
            return
        for rank in list(self._back):
            self._accept(rank)
        if not isinstance(source, Any_):
            self._hear_of(source)
            return
        suspects, self._departures = self.membership.suspects(self._departures)
        self._unheard.update(dict.fromkeys(suspects))
        # Skip news for which an alarm is set, unless faults may change the time of its arrival.
        known = self._announced if not self._registry.gated else ()
        self._unheard = {rank: None for rank in self._unheard if rank not in self.inbox.lost and rank not in known}
        unheard = [(news.time_s, rank) for rank in self._unheard for news in self._news(rank)]
        for _, rank in sorted(unheard):
            self._hear_of(rank)

    def _about_to_wait(self, source: int | Any_) -> None:
        self.membership.listens(self.rank, source)
        if not isinstance(source, Any_) or self.membership.concerns_any(self._registry.gated):
            self.listen(source)

    async def check_reach(self, to: int) -> None:
        """Raise PeerLost if *to* is known to have died, or to be out of reach."""
        if not self.alive:
            raise asyncio.CancelledError  # a dead node sends nothing
        self._accept(to)
        self._hear_of(to)
        if self.inbox.died(to):
            await asyncio.sleep(0)
            raise self.inbox.error(to)
        if (cut := self._cut_off_from(to)) is not None:
            await asyncio.sleep(max(0.0, cut.time_s - self.loop.clock.now_s))
            raise self._out_of_reach(to, cut)

    def _news(self, rank: int) -> list[Departure]:
        """Return the news about *rank*; [] if its loss is known here."""
        known = rank == self.rank or rank in self.inbox.lost
        return [] if known else self.membership.of(rank, self.rank, self.known(rank))

    def _hear_of(self, rank: int) -> None:
        """If *rank* has departed, lose it now or when the news arrives."""
        known, now_s = self.known(rank), self.loop.clock.now_s
        for news in self._news(rank):
            if news.time_s < now_s or (news.cut is not None and news.time_s == now_s):
                self._lose(rank, known, news)
            elif news.cut is not None or (rank, known, news.time_s) not in self._expected:
                if news.cut is None:
                    self._expected.add((rank, known, news.time_s))
                    self._announced.add(rank)
                # Use an alarm even if the news is due now: messages that *rank* sent before it left
                # may arrive at this same instant, and must come first.
                self.loop.clock.alarm_at(news.time_s, partial(self._lose, rank, known), news)

    def _cut_off_from(self, rank: int) -> Departure | None:
        """Return the news of a network cut that keeps sends from draining to *rank*.

        Return None if *rank* has not ended well, or if there is no such cut.
        """
        if self.inbox.lost.get(rank) != ENDED:
            return None
        news = self.membership.of(rank, self.rank, self.known(rank))
        return next((item for item in news if item.cut is not None), None)

    def _out_of_reach(self, rank: int, cut: Departure) -> PeerLost:
        return PeerLost(rank, self.names[rank], cut.reason, self.known(rank))

    def _lose(self, rank: int, known: int, news: Departure) -> None:
        """Fail all receives from *rank*. Fail the sends to *rank*, too, unless it ended well.

        A peer that ended well still accepts messages. Unless a network cut is the reason, messages
        in flight from *rank* arrive first.
        """
        if not self.alive or known != self.known(rank):
            return  # old news
        if news.cut is not None:
            self._registry.of(rank, self.rank).transit.break_for(news.cut)
        elif self.membership.incarnation(rank) == known:
            incoming = self._registry.if_used(rank, self.rank)
            if incoming is not None and incoming.transit.when_silent(partial(self._lose, rank, known, news)):
                return
        if self.inbox.lose(rank, news.reason) and news.reason != ENDED and rank in self.streams:
            self.streams[rank].break_off(lambda: self.inbox.error(rank))

    def _on_told(self, rank: int) -> None:
        if rank in self._back:
            # Defer to an alarm at the current time, so that the caller sees the loss before the
            # returned peer is accepted.
            self.loop.clock.alarm_at(self.loop.clock.now_s, self._accept, rank)

    def _accept(self, rank: int) -> None:
        """Switch to *rank*'s new incarnation if the loss of the previous one has been raised here.

        An incarnation that has been replaced is skipped: the news of the next one is on its way.
        """
        if self._back.get(rank) == self.membership.incarnation(rank) and self.alive and self.inbox.has_told(rank):
            self._known[rank] = self._back.pop(rank)
            self.streams.pop(rank, None)
            self._announced.discard(rank)
            self.inbox.found(rank)
            self._unheard[rank] = None
            self._registry.accept(rank, self.rank)
            if rank in self.membership.departed:  # it departed again before this node accepted it
                self.expect_news_of(rank)
