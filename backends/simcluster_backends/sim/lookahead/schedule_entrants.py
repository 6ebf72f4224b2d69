"""The nodes that enter a schedule, and the events that may happen until all have entered."""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from simcluster_backends.sim.lookahead.awaited_messages import AwaitedMessages
from simcluster_backends.sim.lookahead.events import ends_of, has_flows, woken_by
from simcluster_backends.sim.lookahead.order import leaving_order
from simcluster_backends.sim.lookahead.outlook import Outlooks, firsts_of
from simcluster_backends.sim.lookahead.paths import Floats, Ints, Paths
from simcluster_backends.sim.lookahead.schedule_times import Course
from simcluster_backends.sim.lookahead.suspended_ranks import Beginning, SuspendedRanks, resume
from simcluster_backends.sim.lookahead.traffic import is_by_message, record

if TYPE_CHECKING:
    from collections.abc import Collection

    from simcluster.rounds import Rounds
    from simcluster_backends.sim.lookahead.outlook import Outlook
    from simcluster_backends.sim.lookahead.suspended_ranks import Entry
    from simcluster_backends.sim.loop.event_loop import SimLoop
    from simcluster_backends.sim.members import Members
    from simcluster_backends.sim.membership import SimMembership
    from simcluster_backends.sim.network.routes import ChannelRoutes
    from simcluster_backends.sim.streams import Streams

PATIENCE = 100
"""The maximum number of events, per rank of the cluster, that held ranks wait for."""

FEWEST = 10
"""The minimum average number of messages per round for a schedule to be computed.

Computing a round takes about as long as simulating ten of its messages (docs/performance.md).
"""


class ScheduleEntrants:
    """The nodes that have entered a schedule. *members* has the current incarnation of each rank.

    A node that enters is held until all have entered, as long as the other nodes only sleep,
    compute and wake up, and begin no send or receive. If anything else is about to happen, all held
    nodes begin first.
    """

    fewest: ClassVar[float] = FEWEST

    def __init__(
        self, loop: SimLoop, members: Members, streams: Streams, membership: SimMembership, routes: ChannelRoutes
    ) -> None:
        self._loop = loop
        self._members = members
        self._streams = streams
        self._membership = membership
        self._routes = routes
        self._held = SuspendedRanks(loop, self._begin_soon)
        self._outlooks = Outlooks()
        self._begins = False  # whether held nodes are beginning right now
        self.entered = self._held.entered
        """The held nodes, by rank."""
        self._awaited = AwaitedMessages()

    async def enter(self, rank: int, rounds: Rounds) -> int:
        """Hold *rank*; return how many of *rounds* it can skip, 0 if they must be simulated."""
        if rank in self.entered:  # another task entered a schedule: the two would share paths
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
        """Return whether *rank* can be held before *rounds*.

        No fault may affect its streams, and it must have no send buffer and no pending message or
        receive. *rounds* must be worth computing, and the first act of *rank* in them must not end
        at this instant.
        """
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
        """Let all held nodes begin before the caller continues, as if they had not been held."""
        turn = self._loop.create_future()
        self._begin_soon(turn)
        await turn

    def _begin_soon(self, *turns: asyncio.Future[None]) -> None:
        """Let all held nodes begin before any other ready callback; then complete *turns*."""
        self._loop._ready.appendleft(Beginning(self._begin, turns, Context()))

    def _begin(self) -> None:
        """Let all held nodes begin. Call only while no task runs."""
        if not self.entered:
            return  # they have begun already, because one of them was cancelled
        held = self._release()
        self._begins = True
        held.begin()
        self._begins = False

    def _release(self) -> SuspendedRanks:
        held, self._held = self._held, SuspendedRanks(self._loop, self._begin_soon)
        self.entered = self._held.entered
        self._loop.clock.gather = None
        return held

    def _may_come(self) -> bool:
        """Return True if the next event can run while nodes are held.

        Otherwise let the held nodes begin, so that they run before that event, and return False.
        """
        clock = self._loop.clock
        event = clock.next_event()
        may_wait = True
        if event is None or event[0] > clock.now_s:  # nothing more happens at this instant
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
        """Return whether *event* affects neither a held rank nor what it would have done by now."""
        if self._awaited.comes and not self._wait_first():
            return False
        rank = woken_by(self._loop, event, self._streams.limit_B - self._held.ahead_B)
        if rank is not None:
            return rank not in self.entered
        ends = ends_of(event)
        return bool(ends) and not any(end in self.entered for end in ends) and self._wait_first()

    def _may_wait(self) -> bool:
        """Return whether time may advance while ranks are held. Call at the end of an instant."""
        if len(self._held.moments) > PATIENCE * len(self._members):
            return False
        if not self._held.is_alone:
            clock = self._loop.clock
            self._held.is_alone = clock.settle is None and not has_flows(clock.queue)
        return self._held.is_alone or self._wait_first()

    def _wait_first(self) -> bool:
        """Return whether all held ranks would only have waited for a message so far."""
        if (rounds := self._common()) is None:
            return False
        waits = self._outlook(rounds).firsts.waits
        return all(waits[self._place(rank, rounds)] for rank in self.entered)

    def _common(self) -> Rounds | None:
        """Return the schedule that all held ranks have entered; None if there are several."""
        rounds = [entry.rounds for entry in self.entered.values()]
        return rounds[0] if len({each.kind for each in rounds}) == 1 else None

    def _skip_rounds(self) -> bool:
        """If all nodes have entered, compute and skip rounds; return whether that was possible.

        Call at the end of an instant.
        """
        entries = self.entered
        rounds = self._common()
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
        """Return whether none of *ranks* is gone, and no message in flight, unread or awaited."""
        silent = all(stream.is_silent for stream in self._streams.used())
        there = not self._membership.is_mended and not any(rank in self._membership.departed for rank in ranks)
        return silent and there and all(self._members[rank].inbox.mailbox.is_idle for rank in ranks)

    def _look_ahead(self, entries: list[Entry], ranks: Ints) -> tuple[int, Floats, list[int]] | None:
        """Record the rounds that can be skipped; return None if there are none.

        Return their number, the time at which each rank begins the next round, and the ranks in the
        order in which they begin it."""
        clock = self._loop.clock
        rounds = entries[0].rounds
        paths = Paths(len(self._members), self._streams, self._routes, ranks)
        entered_s = np.array([entry.at_s for entry in entries])
        course = Course(rounds, paths, entered_s, self._streams.limit_B)
        if (ends_s := course.end_s()) is None:
            return None
        until_s = min(float(ends_s.min()), clock.peek())
        over = max((number for number, last_s in enumerate(course.last_in_s) if last_s < until_s), default=0)
        if not over or over < rounds.gathering:
            return None
        if is_by_message(course, over) and course.has_ties():
            return None  # records have messages in order of arrival, which ties leave open
        starts_s = course.starts_s(over)
        early = starts_s < clock.now_s
        # A rank that would have continued before now must only wait: it cannot send in the past.
        if early.any() and not firsts_of(course.rounds, len(entries), over).waits[early].all():
            return None
        record(course, over, starts_s, self._members, self._streams, ranks)
        entered = np.argsort([entry.place for entry in entries])  # places grow with each entry
        return over, starts_s, leaving_order(course, over, starts_s, entered)
