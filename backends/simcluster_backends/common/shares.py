"""How a real node's time divides: a device that computes, sends in flight, receives that wait."""

from __future__ import annotations

import time
from collections.abc import Callable

COMPUTING, SENDING, WAITING, _NOTHING = range(4)
"""A node's activities; the first one in progress counts. Plain numbers: a message begins and ends two of them."""


class TimeShares:
    """Seconds of a node's time by what it did, operations in progress included.

    Each moment counts once: as computing if the device works, else as sending if a send is in flight, else as waiting
    if a receive waits. Only the event loop's thread changes it; any thread may read `totals`.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._open = [0] * _NOTHING
        # (what counts, since when, seconds before that), replaced as one: a reader sees no half of a change.
        self._noted: tuple[int, float, list[float]] = (_NOTHING, now(), [0.0] * _NOTHING)

    def begin(self, kind: int) -> None:
        self._open[kind] += 1
        if kind < self._noted[0]:
            self._note(kind)

    def end(self, kind: int) -> None:
        pending = self._open
        pending[kind] -= 1
        if kind == self._noted[0] and not pending[kind]:
            # Unrolled: this is on the way of every message.
            self._note(0 if pending[0] else 1 if pending[1] else 2 if pending[2] else _NOTHING)

    def totals(self) -> list[float]:
        """Return the seconds of each so far: computing, sending, waiting."""
        kind, since_s, before = self._noted
        found = before.copy()
        if kind != _NOTHING:
            found[kind] += self._now() - since_s
        return found

    def _note(self, kind: int) -> None:
        was, since_s, before = self._noted
        now_s = self._now()
        if was != _NOTHING:
            before = before.copy()
            before[was] += now_s - since_s
        self._noted = kind, now_s, before
