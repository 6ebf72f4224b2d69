"""Doing now what belongs to an earlier time, if nothing since then depends on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simcluster_backends.sim.loop.event_loop import SimLoop


@contextmanager
def in_the_past(loop: SimLoop) -> Iterator[None]:
    """Let the clock be set back, and all that is ready wait; the time and the numbers are the same again at the end.

    A settlement that is due now waits as well: what has changed now had not changed then.
    """
    clock, ready = loop.clock, loop._ready
    now_s, numbers, waiting, settle = clock._now, clock.numbers, list(ready), clock.settle
    ready.clear()
    clock.settle = None
    try:
        yield
    finally:
        clock._now = now_s
        clock.number_on(numbers)
        ready.extend(waiting)
        clock.settle = clock.settle or settle


def run_until(loop: SimLoop, when: float, number: int) -> None:
    """Run the events before the one at *when* with *number*."""
    clock = loop.clock
    while True:
        event = clock.next_event()
        next_s = when if event is None else min(when, event[0])
        if clock.settle is not None and next_s > clock._now:
            clock.settle_now()
        elif event is None or event[:3] >= (when, 1, number):
            return
        else:
            clock.advance()
            loop.drain()
