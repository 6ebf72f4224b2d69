"""Doing now what belongs to an earlier time, if nothing since then depends on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from simcluster_backends.sim.loop.callbacks import Timer, owner_of_task

if TYPE_CHECKING:
    from simcluster_backends.sim.loop.event_loop import SimLoop


@contextmanager
def in_the_past(loop: SimLoop) -> Iterator[None]:
    """Let the clock be set back, and all that is ready wait; the time and the numbers are the same again at the end."""
    clock, ready = loop.clock, loop._ready
    now_s, numbers, waiting = clock._now, clock.numbers, list(ready)
    ready.clear()
    try:
        yield
    finally:
        clock._now = now_s
        clock.number_on(numbers)
        ready.extend(waiting)


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


def woken_by(loop: SimLoop, event: Any) -> object:
    """Return the owner of the task that *event* wakes up; None for an event that may do anything else."""
    argument = getattr(event, "argument", None)
    if type(argument) is Timer:
        return argument.owner()
    return argument[1].get(owner_of_task) if getattr(event, "callback", None) == loop._rested else None


def leads_to(queue: Iterable[Any], kinds: tuple[type, ...]) -> bool:
    """Return whether an event of *queue* is of one of *kinds*."""
    return any(isinstance(getattr(event, "argument", None), kinds) and not event.cancelled for *_, event in queue)
