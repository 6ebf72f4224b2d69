"""The nodes that enter the rounds of a schedule, and what may happen until the last of them has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simcluster_backends.sim.lookahead.course import Course
from simcluster_backends.sim.lookahead.events import ends_of, has_messages, woken_by
from simcluster_backends.sim.lookahead.firsts import LastFirsts, firsts_of
from simcluster_backends.sim.lookahead.held import Beginning, Held, resume
from simcluster_backends.sim.lookahead.paths import Floats, Paths
from simcluster_backends.sim.lookahead.traffic import record

if TYPE_CHECKING:
    from simcluster.rounds import Rounds
    from simcluster_backends.sim.lookahead.held import Entry
    from simcluster_backends.sim.loop.event_loop import SimLoop
    from simcluster_backends.sim.members import Members
    from simcluster_backends.sim.membership import Membership
    from simcluster_backends.sim.network.routes import Routes
    from simcluster_backends.sim.streams import Streams

PATIENCE = 100
"""Events of each rank, at most, that the ranks that are held wait for."""


class Together:
    """The nodes that have entered a schedule. *members* has the current incarnation of each rank.

    A node that enters is held until all have entered, as long as other nodes do nothing but wake up: they sleep and
    compute, and send and receive nothing. If anything else is about to happen, all that are held begin first.
    """

    def __init__(
        self, loop: SimLoop, members: Members, streams: Streams, membership: Membership, routes: Routes
    ) -> None:
        self._loop, self._members, self._streams = loop, members, streams
        self._membership, self._routes = membership, routes
        self._held, self._firsts = Held(loop), LastFirsts(len(members))
        self._begins = False  # those that were held
        self.entered = self._held.entered
        """By rank, the nodes that are held."""

    async def enter(self, rank: int, rounds: Rounds) -> int:
        """Wait for the computed rounds; return how many *rank* can skip, 0 if in any doubt."""
        if rank in self.entered:  # the two schedules would share paths
            await self.leave()
            return 0
        if self._begins or not self._can_hold(rank, rounds):
            return 0
        self._loop.clock.gather = self._may_come
        return await self._held.add(rank, rounds)

    def _can_hold(self, rank: int, rounds: Rounds) -> bool:
        """Return whether nothing of what *rank* does in *rounds* ends at this instant."""
        if self._streams.gated or self._membership.has_news or not self._members[rank].inbox.mailbox.is_idle:
            return False
        firsts = self._firsts.of(rounds)
        return bool(firsts.waits[rank] or firsts.takes_time[rank])

    async def leave(self) -> None:
        """Let all that have entered begin: as they would have, before anything else that the caller does."""
        turn = self._loop.create_future()
        self._loop._ready.appendleft(Beginning(self._begin, turn))
        await turn

    def _begin(self) -> None:
        """Let all that have entered begin. Called where no task runs."""
        held = self._release()
        self._begins = True
        held.begin()
        self._begins = False

    def _release(self) -> Held:
        held, self._held = self._held, Held(self._loop)
        self.entered, self._loop.clock.gather = self._held.entered, None
        return held

    def _may_come(self) -> bool:
        """Return whether the next event may come; otherwise all that are held have begun, which comes first."""
        clock = self._loop.clock
        event = clock.next_event()
        is_last = event is None or event[0] > clock._now  # at this instant
        if is_last and self._skip_rounds():
            return True
        if event is not None and self._is_harmless(event[3]) and (not is_last or self._may_wait()):
            self._held.note(event[0], event[2])
            return True
        self._begin()
        return False

    def _is_harmless(self, event: object) -> bool:
        """Return whether *event* affects no rank that is held, and nothing that these would have done before it."""
        rank = woken_by(self._loop, event)
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
            self._held.is_alone = clock.settle is None and not has_messages(clock._queue)
        return self._held.is_alone or self._wait_first()

    def _wait_first(self) -> bool:
        """Return whether all that are held would only have waited for a message of one that is not."""
        rounds = [entry.rounds for entry in self.entered.values()]
        if len({each.kind for each in rounds}) > 1:
            return False
        return bool(self._firsts.of(rounds[0]).waits[list(self.entered)].all())

    def _skip_rounds(self) -> bool:
        """At the end of an instant, compute the rounds if all nodes have entered; return whether they have been."""
        entries = self.entered
        if not 1 < len(entries) == len(self._members) or any(entry.future.done() for entry in entries.values()):
            return False
        if len({entry.rounds.kind for entry in entries.values()}) > 1 or not self._all_silent():
            return False
        in_order = [entries[rank] for rank in sorted(entries)]
        if (found := self._look_ahead(in_order)) is None:
            return False
        self._release()
        over, starts_s = found
        resume(self._loop, in_order, over, starts_s.tolist())
        return True

    def _all_silent(self) -> bool:
        """Return whether no message is in flight, unread or awaited, and no node has gone."""
        silent = all(stream.is_silent for stream in self._streams.used())
        return silent and not self._membership.has_news and all(node.inbox.mailbox.is_idle for node in self._members)

    def _look_ahead(self, entries: list[Entry]) -> tuple[int, Floats] | None:
        """Record the rounds to skip; return (how many, when each rank begins the next one), None for none."""
        clock = self._loop.clock
        paths = Paths(self._members, self._streams, self._routes)
        entered_s = np.array([entry.at_s for entry in entries])
        course = Course(entries[0].rounds, paths, entered_s, self._streams.limit_B)
        if (ends_s := course.end_s()) is None:
            return None
        first_out_s = ends_s.min()
        over = max((number for number, last_s in enumerate(course.last_in_s) if last_s < first_out_s), default=0)
        if not over or clock.next_alarm_s() <= course.last_in_s[over]:
            return None
        starts_s = course.starts_s(over)
        early = starts_s < clock._now
        if early.any() and not firsts_of(course.rounds, len(entries), over).waits[early].all():
            return None
        record(course, over, starts_s, self._members, self._streams)
        return over, starts_s
