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
from simpy.core import EmptySchedule, StopSimulation
from simpy.events import NORMAL, URGENT, Event, EventPriority

from simcluster_backends.common.worlds.environment import WorldEnvironment

RARELY = (100_000, 50, 50)
"""Garbage collection thresholds for a run: messages and flows form no cycles to be collected.

With Python's defaults, the collector's searches of young objects take a third of a run's time.
"""


GAP = 2**32
"""The number of alarm numbers that `Clock.keep_place` reserves: more than will ever be used."""


class Endless(Exception):
    """A limit on callbacks, network changes or restarts without progress was reached.

    *why* says what went on, and *at_once* that the limit was reached within a single instant.
    """

    def __init__(
        self, why: str = "no work done and nothing recorded for a long time", *, at_once: bool = False
    ) -> None:
        self.at_once = at_once
        super().__init__(why)


class Alarm(msgspec.Struct, eq=False):
    """The smallest entry of the clock's queue: one callback at one time, which can be cancelled."""

    callback: Callable[[Any], object]
    argument: Any
    cancelled: bool = False


class Clock(WorldEnvironment):
    """A SimPy environment with alarms and SimPy's events in one queue of its own.

    The order is time, then SimPy's priority (an alarm's is normal), then the order of scheduling.
    Alarms are set at absolute times: now + (when - now) need not equal when.

    If *gather* is set, it is called before each event; if it returns False, ready callbacks run
    before that event. *settle* is called once nothing more happens at this instant, for work that
    is done once per instant rather than once per event. *handle* runs each of SimPy's events.
    """

    gather: Callable[[], bool] | None = None
    settle: Callable[[], object] | None = None

    def __init__(self, initial_time: float = 0.0) -> None:
        super().__init__(initial_time)
        self.now_s = initial_time
        self.queue: list[tuple[float, int, int, Any]] = []
        self.numbers = count()  # of the next entries; entries at one time happen in this order
        self.handle: Callable[[Event], object] = self.happen
        self._is_handling = False

    @property
    def now(self) -> float:
        return self.now_s

    def alarm_at(self, when: float, callback: Callable[[Any], object], argument: Any = None) -> Alarm:
        """Set an alarm that calls *callback* with *argument* at *when*, or now if that is past."""
        alarm = Alarm(callback, argument)
        now = self.now_s
        heappush(self.queue, (when if when > now else now, NORMAL, next(self.numbers), alarm))
        return alarm

    def add_alarm(self, when: float, alarm: Alarm) -> None:
        """Schedule *alarm* for *when*, which must not be past."""
        heappush(self.queue, (when, NORMAL, next(self.numbers), alarm))

    def schedule(self, event: Event, priority: EventPriority = NORMAL, delay: float = 0.0) -> None:
        """Schedule *event* after *delay* seconds. After an infinite delay, it never happens."""
        if not delay >= 0.0:  # a time that is not a number would have no place in the queue
            raise ValueError(f"a delay of {delay}")
        if delay < math.inf:
            heappush(self.queue, (float(self.now_s + delay), priority, next(self.numbers), event))

    def peek(self) -> float:
        """Return the time of the next event, or inf if there is none."""
        event = self.next_event()
        return math.inf if event is None else event[0]

    def next_event(self) -> tuple[float, int, int, Any] | None:
        """Return the next event, (when, priority, number, what), if there is one."""
        queue = self.queue
        while queue and getattr(queue[0][3], "cancelled", False):
            heappop(queue)
        return queue[0] if queue else None

    def has_alarm(self) -> bool:
        """Return whether an alarm is set."""
        return any(type(entry[3]) is Alarm and not entry[3].cancelled for entry in self.queue)

    def keep_place(self) -> int:
        """Reserve numbers for alarms that are set later but ring as if they were set now.

        Return the first of the numbers, for `number_from`.
        """
        place = next(self.numbers)
        self.numbers = count(place + GAP)
        return place

    def number_from(self, place: int) -> None:
        """Number new alarms from *place* on; alarms at the same time ring in order of number."""
        self.numbers = count(place)

    def number_on(self, numbers: count[int]) -> None:
        """Take the numbers of new alarms from *numbers* again, as before `number_from`."""
        self.numbers = numbers

    def advance(self) -> bool:
        """Advance to the next event and run it. Return False if none is left.

        Cancelled alarms do not advance the clock.
        """
        queue = self.queue
        while True:
            if self.gather is not None and not self.gather():
                return True
            if self.settle is not None and (not queue or queue[0][0] > self.now_s):
                self.settle_now()
            if not queue:
                return False
            now_s, _, _, event = heappop(queue)
            if type(event) is Alarm:
                if not event.cancelled:
                    self.now_s = now_s
                    event.callback(event.argument)
                    return True
            else:
                self.now_s = now_s
                self._is_handling = True
                try:
                    self.handle(event)
                finally:
                    self._is_handling = False
                return True

    def happen(self, event: Event) -> None:
        """Call the callbacks of *event*; raise its exception if it failed and no process has caught that."""
        callbacks: list[Any] = event.callbacks
        event.callbacks = None  # type: ignore[assignment]  # as SimPy marks an event that has happened
        for number, callback in enumerate(callbacks, 1):
            try:
                callback(event)
            except StopSimulation:
                event.callbacks = callbacks[number:]
                self.schedule(event, EventPriority(URGENT - 1))
                raise
        if not event.ok and not event.defused:
            error: Any = event.value
            raise error

    def step(self) -> None:
        """Run the next event or alarm. Raise SimPy's EmptySchedule if there is none."""
        if self._is_handling:
            raise RuntimeError("the clock is running: a process yields the events that it waits for")
        if not self.advance():
            raise EmptySchedule

    def settle_now(self) -> None:
        """Call *settle*, if it is set. The call may set it again."""
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
