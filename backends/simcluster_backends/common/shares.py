"""The shares of a real node's time: computing, sending, waiting."""

from __future__ import annotations

import time
from collections.abc import Callable

COMPUTING, SENDING, WAITING, _NOTHING = range(4)
"""A node's activities. If several are in progress, the one with the lowest number counts.

They are plain numbers, not an Enum, for speed: each message begins and ends two activities.
"""


class TimeShares:
    """The seconds of a node's time by activity, including operations in progress.

    Each moment counts once: as computing if the device works, else as sending if a send is in
    flight, else as waiting if a receive waits. Only the event loop's thread may call `begin` and
    `end`; any thread may call `totals`.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._open = [0] * _NOTHING
        # (current activity, its start, seconds before it), replaced as a whole: a reader in
        # another thread never sees half of a change.
        self._noted: tuple[int, float, list[float]] = (_NOTHING, now(), [0.0] * _NOTHING)

    def begin(self, kind: int) -> None:
        self._open[kind] += 1
        if kind < self._noted[0]:
            self._note(kind)

    def end(self, kind: int) -> None:
        pending = self._open
        pending[kind] -= 1
        if kind == self._noted[0] and not pending[kind]:
            # Find the first activity in progress, unrolled: this runs for every message.
            if pending[COMPUTING]:
                self._note(COMPUTING)
            elif pending[SENDING]:
                self._note(SENDING)
            else:
                self._note(WAITING if pending[WAITING] else _NOTHING)

    def totals(self) -> list[float]:
        """Return the seconds so far: [computing, sending, waiting]."""
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
