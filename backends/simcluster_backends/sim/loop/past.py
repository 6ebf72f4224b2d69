"""Run events late, with the clock set back, if nothing that has happened since depends on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simcluster_backends.sim.loop.event_loop import SimLoop


@contextmanager
def in_the_past(loop: SimLoop) -> Iterator[None]:
    """Let the caller set the clock back. Restore the time and the alarm numbers at the end.

    Callbacks that are ready now wait until then. So does a settlement that is due now, since the
    changes that it settles had not happened at the earlier time.
    """
    clock = loop.clock
    ready = loop._ready
    now_s = clock.now_s
    numbers = clock.numbers
    waiting = list(ready)
    settle = clock.settle
    ready.clear()
    clock.settle = None
    try:
        yield
    finally:
        clock.now_s = now_s
        clock.number_on(numbers)
        ready.extend(waiting)
        clock.settle = clock.settle or settle


def run_until(loop: SimLoop, when: float, number: int) -> None:
    """Run the events before the one at *when* with *number*."""
    clock = loop.clock
    while True:
        event = clock.next_event()
        next_s = when if event is None else min(when, event[0])
        if clock.settle is not None and next_s > clock.now_s:
            clock.settle_now()
        elif event is None or event[:3] >= (when, 1, number):
            return
        else:
            clock.advance()
            loop.drain()
