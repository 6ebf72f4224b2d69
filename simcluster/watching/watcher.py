"""Take the telemetry of a run at a bounded cost, and pass its state to a screen, for example.

The more a look costs, the less often it happens. An error here ends the watching, never the run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from simcluster.watching.board import RunInfo, Telemetry, TelemetryBoard
from simcluster.watching.status import Values, run_status

INTERVAL_S = 0.25
SHARE = 0.02
"""The fraction of the time that watching may take."""

log = logging.getLogger("simcluster.watching")

Show = Callable[[Values, list[Values]], None]
"""A callback that takes the state of a run (`run_status`) and its history."""


class IntervalWatcher:
    """A watcher that calls *show* at most every *interval_s*, the first time after *first_s*.

    It calls less often if it would take more than SHARE of the time. *now* is a clock, and *worked*
    returns the CPU time of the calling thread.
    """

    def __init__(
        self,
        show: Show,
        interval_s: float = INTERVAL_S,
        now: Callable[[], float] = time.monotonic,
        worked: Callable[[], float] = time.thread_time,
        first_s: float = 0.0,
    ) -> None:
        self._show = show
        self._interval_s = interval_s
        self._now = now
        self._worked = worked
        self._board: TelemetryBoard | None = None
        self._first_s = first_s
        self._next_s = 0.0

    def begin(self, run: RunInfo) -> None:
        """Begin to watch a run, or an attempt of it."""
        self._board = TelemetryBoard(run)
        self._next_s = self._now() + self._first_s

    def look(self, telemetry: Callable[[], Telemetry]) -> None:
        """Take *telemetry* and show the state, if the next look is due."""
        if self._board is None or self._now() < self._next_s:
            return
        worked_s = self._worked()
        self._take(self._board, telemetry, None)
        self._next_s = self._now() + max(self._interval_s, (self._worked() - worked_s) / SHARE)

    def end(self, telemetry: Telemetry | None, error: str) -> None:
        """End the watching; *telemetry* is the last of the run, *error* "" if it succeeded."""
        if self._board is not None:
            self._take(self._board, (lambda: telemetry) if telemetry is not None else None, error)
            self._board = None

    def _take(self, board: TelemetryBoard, telemetry: Callable[[], Telemetry] | None, error: str | None) -> None:
        try:
            if telemetry is not None:
                board.add(telemetry())
            if error is not None:
                board.end(error)
            self._show(run_status(board), board.history)
        except Exception:
            log.exception("watching has ended; the run continues")
            self._board = None
