"""The clock of the simulated world: a `simpy.Environment` with alarms in its queue."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from itertools import count
from typing import Any

import msgspec
import simpy

RARELY = (100_000, 50, 50)
"""Messages and flows form no cycles, and searching many young objects for them costs a third of the time."""


GAP = 2**32
"""More than the alarms that are set in place of one number: see `Clock.keep_place`."""


class Endless(Exception):
    """The limit of callbacks without progress was reached; *at_once*: all of them at one instant."""

    def __init__(self, *, at_once: bool = False) -> None:
        self.at_once = at_once
        super().__init__(at_once)


class Alarm(msgspec.Struct, eq=False):
    """The smallest entry of SimPy's queue: one callback at one time, which can be cancelled.

    Only `Clock.advance` can run it; the queue may also hold SimPy's own events.
    """

    callback: Callable[[Any], object]
    argument: Any
    cancelled: bool = False


class Clock(simpy.Environment):
    """A SimPy environment that schedules at absolute times: now + (when - now) need not equal when.

    If set, *gather* is called before each event; if it returns False, what has become ready runs before that. *settle*
    is called once nothing more happens at this instant: for work done once per instant rather than once per event.
    """

    gather: Callable[[], bool] | None = None
    settle: Callable[[], object] | None = None

    def alarm_at(self, when: float, callback: Callable[[Any], object], argument: Any = None) -> Alarm:
        """Call *callback* with *argument* at *when*, or now if that is past."""
        alarm = Alarm(callback, argument)
        queue: list[Any] = self._queue  # holds alarms besides SimPy's events
        now = self._now
        heappush(queue, (when if when > now else now, 1, next(self._eid), alarm))
        return alarm

    def add_alarm(self, when: float, alarm: Alarm) -> None:
        """Ring *alarm* at *when*, which is not past."""
        queue: list[Any] = self._queue
        heappush(queue, (when, 1, next(self._eid), alarm))

    def next_alarm_s(self) -> float:
        """Return the time of the next event, inf if there is none."""
        event = self.next_event()
        return math.inf if event is None else float(event[0])

    def next_event(self) -> tuple[float, int, int, Any] | None:
        """Return the next event, (when, priority, number, what), if there is one."""
        queue: list[Any] = self._queue
        while queue and getattr(queue[0][3], "cancelled", False):
            heappop(queue)
        return queue[0] if queue else None

    def keep_place(self) -> int:
        """Return a number for `number_from`: alarms that are set after that come as if they were set now."""
        place = next(self._eid)
        self._eid = count(place + GAP)
        return place

    def number_from(self, place: int) -> None:
        """Number the alarms that are set from now on, *place* first: at one time they come in this order."""
        self._eid = count(place)

    def number_on(self, numbers: count[int]) -> None:
        """Number the alarms that are set from now on with *numbers*, from before `number_from`."""
        self._eid = numbers

    @property
    def numbers(self) -> count[int]:
        """The numbers of the next alarms."""
        return self._eid

    def advance(self) -> bool:
        """Advance to the next event and run it. Return False if none is left.

        Alarms run here, without the error handling of SimPy's `step`; cancelled ones do not advance the clock.
        """
        queue: list[Any] = self._queue
        while True:
            if self.gather is not None and not self.gather():
                return True
            if self.settle is not None and (not queue or queue[0][0] > self._now):
                self.settle_now()
            if not queue:
                return False
            now_s, _, _, alarm = queue[0]
            if type(alarm) is Alarm:
                heappop(queue)
                if not alarm.cancelled:
                    self._now = now_s
                    alarm.callback(alarm.argument)
                    return True
            else:
                self.step()
                return True

    def settle_now(self) -> None:
        """Do what *settle* asks for."""
        settle, self.settle = self.settle, None
        if settle is not None:
            settle()


@contextmanager
def collected_rarely() -> Iterator[None]:
    """Let Python's garbage collector run rarely, and restore its thresholds afterwards."""
    before = gc.get_threshold()
    gc.set_threshold(*RARELY)
    try:
        yield
    finally:
        gc.set_threshold(*before)
