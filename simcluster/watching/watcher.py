"""Takes the telemetry of a run at a bounded cost and passes its state to a screen or another consumer.

The more a look costs, the less often it happens; an error here ends the watching, never the run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from simcluster.watching.board import RunInfo, Telemetry, TelemetryBoard
from simcluster.watching.status import run_status

INTERVAL_S = 0.25
SHARE = 0.02
"""Share of the time that watching may take."""

log = logging.getLogger("simcluster.watching")

Show = Callable[[dict[str, Any], list[dict[str, Any]]], None]
"""Called with the state of a run (`run_status`) and its history."""


class IntervalWatcher:
    """A watcher that calls *show* at most every *interval_s*, from *first_s* on, and less often to stay within SHARE of
    the time.
    """

    def __init__(
        self,
        show: Show,
        interval_s: float = INTERVAL_S,
        now: Callable[[], float] = time.monotonic,
        worked: Callable[[], float] = time.thread_time,
        first_s: float = 0.0,
    ) -> None:
        self._show, self._interval_s, self._now, self._worked = show, interval_s, now, worked
        self._board: TelemetryBoard | None = None
        self._first_s, self._next_s = first_s, 0.0

    def begin(self, run: RunInfo) -> None:
        """Begin a run, or an attempt of it."""
        self._board, self._next_s = TelemetryBoard(run), self._now() + self._first_s

    def look(self, telemetry: Callable[[], Telemetry]) -> None:
        """Take the telemetry if it is time to."""
        if self._board is None or self._now() < self._next_s:
            return
        worked_s = self._worked()
        self._take(self._board, telemetry, None)
        self._next_s = self._now() + max(self._interval_s, (self._worked() - worked_s) / SHARE)

    def end(self, telemetry: Telemetry | None, error: str) -> None:
        """End the run; *telemetry* is its last."""
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
