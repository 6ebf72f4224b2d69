"""The nodes that enter the rounds of a schedule, and what may happen until the last of them has."""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from simcluster_backends.sim.lookahead.awaited import AwaitedMessages
from simcluster_backends.sim.lookahead.course import Course
from simcluster_backends.sim.lookahead.events import ends_of, has_flows, woken_by
from simcluster_backends.sim.lookahead.held import Beginning, SuspendedRanks, resume
from simcluster_backends.sim.lookahead.order import leaving_order
from simcluster_backends.sim.lookahead.outlook import Outlooks, firsts_of
from simcluster_backends.sim.lookahead.paths import Floats, Ints, Paths
from simcluster_backends.sim.lookahead.traffic import is_by_message, record

if TYPE_CHECKING:
    from collections.abc import Collection

    from simcluster.rounds import Rounds
    from simcluster_backends.sim.lookahead.held import Entry
    from simcluster_backends.sim.lookahead.outlook import Outlook
    from simcluster_backends.sim.loop.event_loop import SimLoop
    from simcluster_backends.sim.members import Members
    from simcluster_backends.sim.membership import SimMembership
    from simcluster_backends.sim.network.routes import ChannelRoutes
    from simcluster_backends.sim.streams import Streams

PATIENCE = 100
"""Events of each rank, at most, that the ranks that are held wait for."""

FEWEST = 10
"""Messages of a round, on average, from which on the rounds of a schedule are computed.

A round takes about as long to compute as ten of its messages to simulate (docs/performance.md).
"""


class ScheduleEntrants:
    """The nodes that have entered a schedule. *members* has the current incarnation of each rank.

    A node that enters is held until all have entered, as long as other nodes do nothing but wake up: they sleep and
    compute, and send and receive nothing. If anything else is about to happen, all that are held begin first.
    """

    fewest: ClassVar[float] = FEWEST

    def __init__(
        self, loop: SimLoop, members: Members, streams: Streams, membership: SimMembership, routes: ChannelRoutes
    ) -> None:
        self._loop, self._members, self._streams = loop, members, streams
        self._membership, self._routes = membership, routes
        self._held, self._outlooks = SuspendedRanks(loop, self._begin_soon), Outlooks()
        self._begins = False  # those that were held
        self.entered = self._held.entered
        """By rank, the nodes that are held."""
        self._awaited = AwaitedMessages()

    async def enter(self, rank: int, rounds: Rounds) -> int:
        """Wait for the computed rounds; return how many *rank* can skip, 0 if in any doubt."""
        if rank in self.entered:  # the two schedules would share paths
            await self.leave()
            return 0
        if self._begins or not self._can_hold(rank, rounds):
            return 0
        if not self.entered:
            self._loop.clock.gather = self._may_come
            self._awaited.note(self._members)
        self._awaited.check(rank, rounds)
        return await self._held.add(rank, rounds)

    def _can_hold(self, rank: int, rounds: Rounds) -> bool:
        """Return whether nothing of what *rank* does in *rounds* ends at this instant."""
        member = self._members[rank]
        if self._streams.gated or self._membership.is_mended or not member.inbox.mailbox.is_idle:
            return False
        if member.buffer is not None:
            return False
        (waits, takes_time), messages = self._outlook(rounds)
        if messages < self.fewest or not rounds.vector.numel():  # messages without a body take no time to leave
            return False
        place = self._place(rank, rounds)
        return bool(waits[place] or takes_time[place])

    def _outlook(self, rounds: Rounds) -> Outlook:
        return self._outlooks.of(rounds, self._size(rounds))

    def _size(self, rounds: Rounds) -> int:
        return len(self._members) if rounds.group is None else len(rounds.group)

    def _place(self, rank: int, rounds: Rounds) -> int:
        return rank if rounds.group is None else rounds.group.index(rank)

    async def leave(self) -> None:
        """Let all that have entered begin: as they would have, before anything else that the caller does."""
        turn = self._loop.create_future()
        self._begin_soon(turn)
        await turn

    def _begin_soon(self, *turns: asyncio.Future[None]) -> None:
        """Let all that have entered begin before anything else that is ready; *turns* are done then."""
        self._loop._ready.appendleft(Beginning(self._begin, turns, Context()))

    def _begin(self) -> None:
        """Let all that have entered begin. Called where no task runs."""
        if not self.entered:
            return  # they have begun, since one of them was cancelled, too
        held = self._release()
        self._begins = True
        held.begin()
        self._begins = False

    def _release(self) -> SuspendedRanks:
        held, self._held = self._held, SuspendedRanks(self._loop, self._begin_soon)
        self.entered, self._loop.clock.gather = self._held.entered, None
        return held

    def _may_come(self) -> bool:
        """Return whether the next event may come; otherwise all that are held have begun, which comes first."""
        clock = self._loop.clock
        event = clock.next_event()
        may_wait = True
        if event is None or event[0] > clock._now:  # nothing more happens at this instant
            if self._skip_rounds():
                return True
            may_wait = self._may_wait()
            if may_wait and clock.settle is not None:
                clock.settle_now()  # the end of a flow may come before that event
                event = clock.next_event()
        if event is not None and may_wait and self._is_harmless(event[3]):
            self._held.note(event[0], event[2])
            return True
        self._begin()
        return False

    def _is_harmless(self, event: object) -> bool:
        """Return whether *event* affects no rank that is held, and nothing that these would have done before it."""
        if self._awaited.comes and not self._wait_first():
            return False
        rank = woken_by(self._loop, event, self._streams.limit_B - self._held.ahead_B)
        if rank is not None:
            return rank not in self.entered
        ends = ends_of(event)
        return bool(ends) and not any(end in self.entered for end in ends) and self._wait_first()

    def _may_wait(self) -> bool:
        """Return whether time may advance while some are held. Called at the end of an instant."""
        if len(self._held.moments) > PATIENCE * len(self._members):
            return False
        if not self._held.is_alone:
            clock = self._loop.clock
            self._held.is_alone = clock.settle is None and not has_flows(clock._queue)
        return self._held.is_alone or self._wait_first()

    def _wait_first(self) -> bool:
        """Return whether all that are held would only have waited for a message of one that is not."""
        if (rounds := self._common()) is None:
            return False
        waits = self._outlook(rounds).firsts.waits
        return all(waits[self._place(rank, rounds)] for rank in self.entered)

    def _common(self) -> Rounds | None:
        """Return the schedule that all have entered that are held; None if they have entered several."""
        rounds = [entry.rounds for entry in self.entered.values()]
        return rounds[0] if len({each.kind for each in rounds}) == 1 else None

    def _skip_rounds(self) -> bool:
        """At the end of an instant, compute the rounds if all nodes have entered; return whether they have been."""
        entries, rounds = self.entered, self._common()
        if rounds is None or not 1 < len(entries) == self._size(rounds):
            return False
        if not self._all_silent(entries):
            return False
        ranks = sorted(entries) if rounds.group is None else rounds.group
        in_order = [entries[rank] for rank in ranks]
        if (found := self._look_ahead(in_order, np.array(ranks))) is None:
            return False
        self._release()
        over, starts_s, order = found
        resume(self._loop, [(float(starts_s[place]), in_order[place]) for place in order], over)
        return True

    def _all_silent(self, ranks: Collection[int]) -> bool:
        """Return whether no message is in flight, unread or awaited, and none of *ranks* has gone."""
        silent = all(stream.is_silent for stream in self._streams.used())
        there = not self._membership.is_mended and not any(rank in self._membership.departed for rank in ranks)
        return silent and there and all(self._members[rank].inbox.mailbox.is_idle for rank in ranks)

    def _look_ahead(self, entries: list[Entry], ranks: Ints) -> tuple[int, Floats, list[int]] | None:
        """Record the rounds to skip; return (how many, when each rank begins the next one, their order), if any."""
        clock, rounds = self._loop.clock, entries[0].rounds
        paths = Paths(len(self._members), self._streams, self._routes, ranks)
        entered_s = np.array([entry.at_s for entry in entries])
        course = Course(rounds, paths, entered_s, self._streams.limit_B)
        if (ends_s := course.end_s()) is None:
            return None
        until_s = min(float(ends_s.min()), clock.next_alarm_s())
        over = max((number for number, last_s in enumerate(course.last_in_s) if last_s < until_s), default=0)
        if not over or over < rounds.gathering:
            return None
        if is_by_message(course, over) and course.has_ties():
            return None  # their order of arrival would be recorded
        starts_s = course.starts_s(over)
        early = starts_s < clock._now
        if early.any() and not firsts_of(course.rounds, len(entries), over).waits[early].all():
            return None
        record(course, over, starts_s, self._members, self._streams, ranks)
        entered = np.argsort([entry.place for entry in entries])  # each has drawn a number when it entered
        return over, starts_s, leaving_order(course, over, starts_s, entered)
