"""The clock of the simulated world: a `simpy.Environment` with alarms in its queue."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import Any

import msgspec
import simpy

RARELY = (100_000, 50, 50)
"""Messages and flows form no cycles, and searching many young objects for them costs a third of the time."""


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
    """Calls of one time, the first with the number *first*, the others with those that follow; *at* are over."""

    when: float
    first: int
    calls: list[tuple[Callable[[Any], object], Any]]
    at: int = 0


class Clock(simpy.Environment):
    """A SimPy environment that schedules at absolute times: now + (when - now) need not equal when.

    If set, *gather* is called before time advances, and *settle* once nothing more happens at this instant: hooks for
    work done once per instant rather than once per event.
    """

    gather: Callable[[], object] | None = None
    settle: Callable[[], object] | None = None
    ready: Sized = ()
    """The callbacks of the loop that come before the next event."""
    _row: Row | None = None  # the last one

    def alarm_at(self, when: float, callback: Callable[[Any], object], argument: Any = None) -> Alarm:
        """Call *callback* with *argument* at *when*, or now if that is past."""
        alarm = Alarm(callback, argument)
        queue: list[Any] = self._queue  # holds alarms besides SimPy's events
        now = self._now
        heappush(queue, (when if when > now else now, 1, next(self._eid), alarm))
        return alarm

    def call_at(self, when: float, callback: Callable[[Any], object], argument: Any) -> None:
        """Do as `alarm_at`, for what is often called in rows: those of one time have one entry in the queue."""
        number, row = next(self._eid), self._row
        if row is not None and row.when == when and number == row.first + len(row.calls):
            row.calls.append((callback, argument))
            return
        self._row = row = Row(when, number, [(callback, argument)])
        queue: list[Any] = self._queue
        heappush(queue, (when if when > self._now else self._now, 1, number, Alarm(self._run_row, row)))

    def _run_row(self, row: Row) -> None:
        """Make the calls, and let happen between two of them what comes before the second."""
        self._row = None
        calls = row.calls
        while True:
            callback, argument = calls[row.at]
            row.at += 1
            callback(argument)
            if row.at == len(calls):
                return
            if self.comes_before(number := row.first + row.at):
                queue: list[Any] = self._queue
                heappush(queue, (self._now, 1, number, Alarm(self._run_row, row)))
                return

    def comes_before(self, number: int) -> bool:
        """Return whether anything happens before an alarm with this *number* that is due now."""
        queue: list[Any] = self._queue
        return bool(self.ready) or bool(queue and queue[0] < (self._now, 1, number))

    def next_alarm_s(self) -> float:
        """Return the time of the next event, inf if there is none."""
        queue: list[Any] = self._queue
        while queue and getattr(queue[0][3], "cancelled", False):
            heappop(queue)
        return float(queue[0][0]) if queue else math.inf

    def advance(self) -> bool:
        """Advance to the next event and run it. Return False if none is left.

        Alarms run here, without the error handling of SimPy's `step`; cancelled ones do not advance the clock.
        """
        queue: list[Any] = self._queue
        while True:
            if (self.settle is not None or self.gather is not None) and (not queue or queue[0][0] > self._now):
                if self.gather is not None:
                    gather, self.gather = self.gather, None
                    gather()
                    return True
                if self.settle is not None:
                    settle, self.settle = self.settle, None
                    settle()
            if not queue:
                return False
            now_s, _, _, alarm = queue[0]
            if type(alarm) is not Alarm:
                self.step()
                return True
            heappop(queue)
            if not alarm.cancelled:
                self._now = now_s
                alarm.callback(alarm.argument)
                return True


@contextmanager
def collected_rarely() -> Iterator[None]:
    """Let Python's garbage collector run rarely, and restore its thresholds afterwards."""
    before = gc.get_threshold()
    gc.set_threshold(*RARELY)
    try:
        yield
    finally:
        gc.set_threshold(*before)
