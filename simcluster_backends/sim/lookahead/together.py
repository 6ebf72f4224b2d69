"""The nodes that enter the rounds of a schedule at one instant."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from operator import itemgetter
from typing import TYPE_CHECKING

from simcluster_backends.sim.lookahead.course import Course
from simcluster_backends.sim.lookahead.paths import Floats, Paths
from simcluster_backends.sim.lookahead.traffic import record, record_each
from simcluster_backends.sim.lookahead.values import hand_over
from simcluster_backends.sim.loop.callbacks import Handle, answer_next

if TYPE_CHECKING:
    from simcluster.rounds import Rounds
    from simcluster_backends.sim.loop.event_loop import SimLoop
    from simcluster_backends.sim.members import Members
    from simcluster_backends.sim.membership import Membership
    from simcluster_backends.sim.network.routes import Routes
    from simcluster_backends.sim.streams import Streams


class Together:
    """The nodes that have entered a schedule at this instant. *members* has the current incarnation of each rank."""

    def __init__(
        self, loop: SimLoop, members: Members, streams: Streams, membership: Membership, routes: Routes
    ) -> None:
        self._loop, self._members, self._streams = loop, members, streams
        self._membership, self._routes = membership, routes
        self.entered: dict[int, tuple[Rounds, asyncio.Future[int]]] = {}
        """By rank, what waits for the end of this instant."""

    async def enter(self, rank: int, rounds: Rounds) -> int:
        """Wait for the computed rounds; return how many *rank* can skip, 0 if in any doubt."""
        if rank in self.entered:  # the two schedules would share paths
            await self.leave()
            return 0
        future: asyncio.Future[int] = self._loop.create_future()
        self.entered[rank] = rounds, future
        self._loop.clock.gather = self._decide
        return await future

    async def leave(self) -> None:
        """Let all that have entered send their first messages: as they would have, before any later message leaves."""
        entered, self.entered = self.entered, {}
        ready, turn = self._loop._ready, self._loop.create_future()
        ready.appendleft(Handle(answer_next, (ready, turn, None), copy_context()))
        for _, future in reversed(entered.values()):
            answer_next(ready, future, 0)
        await turn

    def _decide(self) -> None:
        """Decide at the end of this instant, when all nodes have entered."""
        entered, self.entered = self.entered, {}
        waiting = [(rank, rounds, future) for rank, (rounds, future) in entered.items() if not future.done()]
        all_in = len(waiting) == len(self._members)
        found = None
        if all_in and len(waiting) > 1 and len({rounds.kind for _, rounds, _ in waiting}) == 1 and self._all_silent():
            found = self._look_ahead([rounds for _, rounds, _ in sorted(waiting, key=itemgetter(0))])
        over, starts_s = found or (0, None)
        for rank, _, future in waiting:
            if starts_s is None:
                future.set_result(0)
            else:
                self._loop.clock.alarm_at(float(starts_s[rank]), future.set_result, over)

    def _all_silent(self) -> bool:
        """Return whether no message is in flight, unread or awaited, and no node has gone."""
        silent = all(stream.is_silent for stream in self._streams.used())
        return silent and not self._membership.has_news and all(node.inbox.mailbox.is_idle for node in self._members)

    def _look_ahead(self, by_rank: list[Rounds]) -> tuple[int, Floats] | None:
        """Record the rounds to skip; return (how many, when each rank begins the next one), None for none."""
        clock, size, rounds = self._loop.clock, len(self._members), by_rank[0]
        paths = Paths(self._members, self._streams, self._routes)
        course = Course(rounds, size, paths, clock.now, self._streams.limit_B)
        if (ends_s := course.end_s()) is None:
            return None
        first_out_s = ends_s.min()
        over = max((number for number, last_s in enumerate(course.last_in_s) if last_s < first_out_s), default=0)
        if not over or clock.next_alarm_s() <= course.last_in_s[over]:
            return None
        starts_s = course.starts_s(over)
        if rounds.sends is None:
            record(course, over, starts_s, self._members, self._streams)
        else:
            hand_over(by_rank, over)
            record_each(course, over, self._members, self._streams)
        return over, starts_s
