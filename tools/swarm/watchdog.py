"""Bounds a run in callbacks, processor time and real time, so that a livelock is found rather than waited for."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from simcluster_backends.sim.loop import event_loop as loop

CALLBACKS: Final = 200_000
"""Callbacks without progress; the library's own limit is for runs of hours."""
PROCESSOR_S: Final = 30.0
"""Of this process, whatever else the machine does; a run takes about 0.05."""
REAL_S: Final = 300.0
"""For what waits and does not compute."""


class Livelock(KeyboardInterrupt):
    """A run without end. The simulated loop lets only an interrupt through."""


@contextmanager
def watched() -> Iterator[None]:
    """Raises Livelock in a block that takes too long."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Livelock(f"no end after {PROCESSOR_S:g} s of processor time, or {REAL_S:g} s of real time")

    limit, loop.IDLE_CALLBACKS_LIMIT = loop.IDLE_CALLBACKS_LIMIT, CALLBACKS
    kinds = {signal.SIGVTALRM: (signal.ITIMER_VIRTUAL, PROCESSOR_S), signal.SIGALRM: (signal.ITIMER_REAL, REAL_S)}
    before = {kind: signal.signal(kind, stop) for kind in kinds}
    try:
        for timer, seconds in kinds.values():
            signal.setitimer(timer, seconds)
        yield
    finally:
        for timer, _ in kinds.values():
            signal.setitimer(timer, 0.0)
        for kind, handler in before.items():
            signal.signal(kind, handler)
        loop.IDLE_CALLBACKS_LIMIT = limit
