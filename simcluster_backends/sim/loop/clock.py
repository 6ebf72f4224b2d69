"""The clock of the simulated world: a `simpy.Environment` with alarms in its queue."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator, Sized
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


class Row(msgspec.Struct, eq=False):
    """Alarms at one time that follow each other in the clock's order, as one entry of SimPy's queue; *past* have rung.

    No other event is between two of them, so each rings where it would ring with an entry of its own.
    """

    alarms: list[Alarm]
    past: int = 0

    @property
    def cancelled(self) -> bool:
        """Whether none is left to ring."""
        return self.next is None

    @property
    def next(self) -> Alarm | None:
        """The alarm that rings next."""
        left = range(self.past, len(self.alarms))
        return next((self.alarms[place] for place in left if not self.alarms[place].cancelled), None)


class Clock(simpy.Environment):
    """A SimPy environment that schedules at absolute times: now + (when - now) need not equal when.

    If set, *gather* is called before each event; if it returns False, what has become ready runs before that. *settle*
    is called once nothing more happens at this instant: for work done once per instant rather than once per event.
    """

    gather: Callable[[], bool] | None = None
    settle: Callable[[], object] | None = None
    ready: Sized = ()
    """The callbacks of the loop that come before the next event."""
    _latest: Row | None = None  # it may grow, by an alarm at the same time and with the next number:
    _latest_s, _next = 0.0, 0

    def alarm_at(self, when: float, callback: Callable[[Any], object], argument: Any = None) -> Alarm:
        """Call *callback* with *argument* at *when*, or now if that is past."""
        alarm = Alarm(callback, argument)
        queue: list[Any] = self._queue  # holds alarms besides SimPy's events
        now = self._now
        heappush(queue, (when if when > now else now, 1, next(self._eid), alarm))
        return alarm

    def add_alarm(self, when: float, alarm: Alarm) -> None:
        """Ring *alarm* at *when*, which is not past; it shares an entry of the queue with others that it follows.

        For alarms that often come in rows.
        """
        number, latest = next(self._eid), self._latest
        if number == self._next and when == self._latest_s and latest is not None:
            latest.alarms.append(alarm)
        else:
            self._latest, self._latest_s = Row([alarm]), when
            queue: list[Any] = self._queue
            heappush(queue, (when, 1, number, self._latest))
        self._next = number + 1

    def comes_before(self, number: int) -> bool:
        """Return whether anything happens before an event with this *number* that is due now."""
        if self.ready or self.gather is not None:
            return True
        queue: list[Any] = self._queue
        return bool(queue and queue[0] < (self._now, 1, number))

    def next_alarm_s(self) -> float:
        """Return the time of the next event, inf if there is none."""
        event = self.next_event()
        return math.inf if event is None else float(event[0])

    def next_event(self) -> tuple[float, int, int, Any] | None:
        """Return the next event, (when, priority, number, what), if there is one."""
        queue: list[Any] = self._queue
        while queue and getattr(queue[0][3], "cancelled", False):
            heappop(queue)
            self._latest = None  # it may be gone
        if not queue:
            return None
        when, priority, number, event = queue[0]
        return when, priority, number, event.next if type(event) is Row else event

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
            elif type(alarm) is not Row:
                self.step()
                return True
            elif self._ring(alarm):
                return True

    def _ring(self, row: Row) -> bool:
        """Ring the alarms of *row*, which is next, until something comes before one. Return whether any rang."""
        queue: list[Any] = self._queue
        entry, alarms, rang = heappop(queue), row.alarms, False
        self._latest = None
        while row.past < len(alarms):
            if rang and self.comes_before(entry[2]):
                heappush(queue, entry)
                break
            alarm = alarms[row.past]
            row.past += 1
            if not alarm.cancelled:
                self._now, rang = entry[0], True
                alarm.callback(alarm.argument)
        return rang

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
