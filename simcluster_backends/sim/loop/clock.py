"""The clock of the simulated world: a `simpy.Environment` with alarms in its queue."""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

import simpy


class Alarm:
    """The smallest thing that waits in SimPy's queue: one callback at one time, and a way to call it off.

    Only `Clock.advance` can run it; SimPy's own events may stand beside it.
    """

    __slots__ = ("argument", "callback", "cancelled")

    def __init__(self, callback: Callable[[Any], object], argument: Any) -> None:
        self.callback, self.argument = callback, argument
        self.cancelled = False


class Clock(simpy.Environment):
    """A SimPy environment that schedules at absolute times: now + (when - now) need not be when.

    Before time moves on, *gather* is called, and when nothing more happens at this moment *settle*, if they are set:
    for what is done once a moment, not once an event.
    """

    gather: Callable[[], object] | None = None
    settle: Callable[[], object] | None = None

    def alarm_at(self, when: float, callback: Callable[[Any], object], argument: Any = None) -> Alarm:
        """Calls *callback* with *argument* at *when*, or now if that is past."""
        alarm = Alarm(callback, argument)
        queue: list[Any] = self._queue  # ours holds alarms beside SimPy's events
        now = self._now
        heappush(queue, (when if when > now else now, 1, next(self._eid), alarm))
        return alarm

    def next_alarm_s(self) -> float:
        """When the next event is, inf if none is."""
        queue: list[Any] = self._queue
        while queue and getattr(queue[0][3], "cancelled", False):
            heappop(queue)
        return float(queue[0][0]) if queue else math.inf

    def advance(self) -> bool:
        """Runs the next event, whose time becomes now. False if none is left.

        Alarms are run here, without what SimPy's `step` does for events that can fail; those that were called off do
        not move the clock.
        """
        queue: list[Any] = self._queue
        while True:
            if (self.gather or self.settle) is not None and (not queue or queue[0][0] > self._now):
                if self.gather is not None:
                    gather, self.gather = self.gather, None
                    gather()
                    return True
                if self.settle is not None:
                    settle, self.settle = self.settle, None
                    settle()
            if not queue:
                return False
            event = queue[0][3]
            if not isinstance(event, Alarm):
                self.step()
                return True
            when = heappop(queue)[0]
            if not event.cancelled:
                self._now = when
                event.callback(event.argument)
                return True
