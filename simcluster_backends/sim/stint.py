"""Pieces of work that compute nothing, one right after another on a node's device, without a task in between.

Each piece ends at an alarm of its own, and the next one begins in the callback of that alarm: where the node's task
would begin it, since nothing else is ready then. So times, spans and the order of all events are those of pieces that a
task begins one by one. If anything of the node may come between two pieces, its task is resumed there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextvars import copy_context
from typing import TYPE_CHECKING

from simcluster_backends.sim.loop.clock import Alarm

if TYPE_CHECKING:
    from simcluster.transport import Cost
    from simcluster_backends.sim.member import Member


class Stint:
    """Pieces of work of *member* on its device, which is taken, with the costs that are next in *costs*."""

    def __init__(self, member: Member, costs: Iterator[Cost]) -> None:
        self._member, self._costs = member, costs
        self._loop, self._clock = member.loop, member.loop.clock
        self._device, self._lock = member.device, member.device_lock
        self._over: asyncio.Future[None] = asyncio.Future(loop=member.loop)
        self._alarm = Alarm(self._ended, member)
        self._context = copy_context()
        self._start_s: float | None = None  # of the current piece

    async def work(self, cost: Cost) -> None:
        """Return after a piece of *cost* and those that could follow it without this task."""
        try:
            if self._begin(cost):
                await self._over
            else:
                await asyncio.sleep(0)
        finally:
            self._alarm.cancelled = True
            self._end()

    def _begin(self, cost: Cost) -> bool:
        """Begin a piece of work; return whether it takes any time."""
        now_s = self._clock._now
        duration_s = self._device.start(cost, now_s)
        self._start_s = now_s
        if not duration_s:
            return False
        self._clock.add_alarm(now_s + duration_s, self._alarm)
        return True

    def _end(self) -> None:
        """End the current piece, if any."""
        start_s, self._start_s = self._start_s, None
        if start_s is not None:
            end_s = self._clock._now
            self._loop.progress()
            self._device.stop(end_s)
            self._member.recorder.span("compute", start_s, end_s, -1, "", 0)

    def _ended(self, _: object) -> None:
        """Continue at the end of a piece, without the task if possible."""
        if not self._loop.frozen.held and not self._lock.is_wanted():
            try:
                for cost in self._costs:
                    self._end()
                    if self._begin(cost):
                        return
            except Exception as error:  # of the costs
                self._over.set_exception(error)
                return
        self._loop.rested((self._over, self._context))
