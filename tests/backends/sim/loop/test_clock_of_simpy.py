"""The clock as a `simpy.Environment`: SimPy's public interface, and one order of events and alarms."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nan
from typing import Any

import pytest
import simpy
from simcluster_backends.sim.loop.clock import Clock
from simpy.core import EmptySchedule
from simpy.events import NORMAL, URGENT


def events_of(clock: Clock) -> list[str]:
    """Schedule alarms, timeouts and an urgent event for 1 s in turn; return the order in which they happen."""
    order: list[str] = []

    def on(event: simpy.Event, name: str) -> None:
        event.callbacks.append(lambda _: order.append(name))

    clock.alarm_at(1.0, order.append, "alarm 0")
    on(clock.timeout(1.0), "timeout 1")
    clock.alarm_at(1.0, order.append, "alarm 2")
    on(clock.timeout(1.0), "timeout 3")
    urgent = clock.event()
    on(urgent, "urgent")
    urgent._ok, urgent._value = True, None  # as SimPy triggers an event
    clock.schedule(urgent, URGENT, 1.0)
    clock.alarm_at(0.5, order.append, "earlier")
    return order


def test_the_order_is_time_then_priority_then_the_order_of_scheduling() -> None:
    clock = Clock()
    order = events_of(clock)
    clock.run()
    assert order == ["earlier", "urgent", "alarm 0", "timeout 1", "alarm 2", "timeout 3"]
    assert clock.now == 1.0


def test_peek_and_step_go_through_alarms_and_events_and_skip_cancelled_alarms() -> None:
    clock = Clock()
    clock.alarm_at(1.0, print).cancelled = True
    rang: list[float] = []
    clock.alarm_at(2.0, lambda _: rang.append(clock.now))
    clock.timeout(3.0)
    assert clock.peek() == 2.0
    clock.step()
    assert (rang, clock.now, clock.peek()) == ([2.0], 2.0, 3.0)
    clock.step()
    assert (clock.now, clock.peek()) == (3.0, inf)
    with pytest.raises(EmptySchedule):
        clock.step()


def test_resources_conditions_and_interrupts_are_simpys_own() -> None:
    clock = Clock()
    told: list[Any] = []

    def holder(machine: simpy.Resource) -> Iterator[simpy.Event]:
        with machine.request() as mine:
            yield mine
            yield clock.timeout(2.0)

    def waiter(machine: simpy.Resource) -> Iterator[simpy.Event]:
        with machine.request() as mine:
            either: Any = yield mine | clock.timeout(1.0)
            told.append((clock.now, mine in either))
            yield mine & clock.timeout(5.0)
            told.append(clock.now)

    def sleeper() -> Iterator[simpy.Event]:
        try:
            yield clock.timeout(inf)
        except simpy.Interrupt as interrupt:
            told.append((clock.now, interrupt.cause))

    machine = simpy.Resource(clock)
    clock.process(holder(machine))
    clock.process(waiter(machine))
    asleep = clock.process(sleeper())

    def waker() -> Iterator[simpy.Event]:
        yield clock.timeout(3.0)
        asleep.interrupt("up")
        return "done"

    assert clock.run(clock.process(waker())) == "done"
    clock.run(until=20.0)
    assert clock.now == 20.0
    # The machine is busy until 2 s, so the timeout of 1 s comes first; the second one begins then.
    assert told == [(1.0, False), (3.0, "up"), 6.0]


def test_an_event_that_fails_uncaught_raises_and_the_clock_is_not_run_from_within() -> None:
    clock = Clock()

    def wrong() -> Iterator[simpy.Event]:
        yield clock.timeout(1.0)
        with pytest.raises(RuntimeError, match="yields the events that it waits for"):
            clock.run()
        raise LookupError("lost")

    clock.process(wrong())
    with pytest.raises(LookupError, match="lost"):
        clock.run()
    with pytest.raises(ValueError, match="nan"):
        clock.schedule(clock.event(), NORMAL, nan)
