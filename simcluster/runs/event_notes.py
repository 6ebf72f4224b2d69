"""Record the order of a node's events while it runs, and hand it over in chunks."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from simcluster.runs.event_order import CHUNK_EVENTS, CHUNK_S, EventColumns, EventKind, ImmediateAnswers, pack

NOTES: ContextVar[Notes | None] = ContextVar("notes", default=None)
"""The recorder of the running node: the node's tasks, timers and callbacks inherit the context."""


class Notes:
    """The recorder of one node's event order; *now* returns the time of the run.

    Events occur between callbacks of the node, immediate answers within them. Call all methods
    except `take` in the node's thread.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.executed = 0
        self.timers = itertools.count(1)
        self.tasks = itertools.count(1)
        self.asides = itertools.count(1)
        self._now = now
        self._over = False
        self._full: deque[tuple[EventColumns, ImmediateAnswers, int | None]] = deque()
        self._begin_chunk()

    def begin(self) -> None:
        """Start recording. Call it in the program's first callback, which is counted."""
        self.executed = 1
        NOTES.set(self)

    def end(self) -> None:
        """Stop recording: the program has ended."""
        if not self._over:
            self._over = True
            self._full.append((self._events, self.answers, self.executed))

    def run(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        """Run one of the node's callbacks."""
        self.executed += 1
        callback(*args)

    def note(self, kind: EventKind, number: int) -> None:
        """Record an event of *kind* that takes effect now; for *number*, see EventKind."""
        if self._over:
            return
        self._kinds.append(kind)
        self._counts.append(self.executed)
        self._numbers.append(number)
        now_s = self._now()
        self._times_s.append(now_s)
        if len(self._kinds) >= CHUNK_EVENTS or now_s > self._times_s[0] + CHUNK_S:
            self._full.append((self._events, self.answers, None))
            self._begin_chunk()

    def message(self, source: int, digest: int) -> None:
        if not self._over:
            self._digests.append(digest)
            self.note(EventKind.MESSAGE, source)

    def gone(self, kind: EventKind, number: int, reason: str) -> None:
        """Record a LOST or FAILED event."""
        if not self._over:
            self.answers.reasons.append(reason)
            self.note(kind, number)

    def read(self, time_s: float) -> float:
        """Record the time that the node's code reads, and return it."""
        self.answers.reads.append(time_s)
        return time_s

    def fire(self, number: int, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        """Run *callback* of the node's timer *number*, which is due."""
        self.note(EventKind.TIMER, number)
        callback(*args)

    def take(self) -> list[bytes]:
        """Return the full chunks, packed. Any thread may call it."""
        found = []
        while self._full:
            found.append(pack(*self._full.popleft()))
        return found

    def _begin_chunk(self) -> None:
        self._events = EventColumns()
        self.answers = ImmediateAnswers()
        # `note` runs for every event: these names save it the attribute look-ups.
        self._kinds, self._counts = self._events.kinds, self._events.counts
        self._numbers = self._events.numbers
        self._times_s = self._events.times_s
        self._digests = self._events.digests
