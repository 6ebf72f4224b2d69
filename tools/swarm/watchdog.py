"""Limits on a run's callbacks, CPU time and wall time, which detect a livelock quickly."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from simcluster_backends.sim.loop import event_loop as loop

CALLBACKS: Final = 200_000
"""The limit on callbacks without progress. The library's limit is higher, for runs of hours."""
PROCESSOR_S: Final = 30.0
"""The limit on CPU time, which does not depend on the machine's load.

A run takes about 0.05 s.
"""
REAL_S: Final = 300.0
"""The limit on wall time, for runs that wait without computing."""


class Livelock(KeyboardInterrupt):
    """Raised in a run that does not end.

    It is a KeyboardInterrupt because the simulated loop lets only interrupts through.
    """


@contextmanager
def watched() -> Iterator[None]:
    """Raise Livelock if the block exceeds a limit."""

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
