"""A watcher for tests."""

from __future__ import annotations

from collections.abc import Callable

from simcluster.watching.board import RunInfo, Telemetry


class Seen:
    """A watcher that keeps what it was told, and calls *then* at each look."""

    def __init__(self, then: Callable[[Telemetry], None] = lambda _: None) -> None:
        self.then, self.runs, self.last, self.error = then, list[RunInfo](), Telemetry(elapsed_s=0.0), "not over"

    def begin(self, run: RunInfo) -> None:
        self.runs.append(run)

    def look(self, telemetry: Callable[[], Telemetry]) -> None:
        self.then(telemetry())

    def end(self, telemetry: Telemetry | None, error: str) -> None:
        assert telemetry is not None
        self.last, self.error = telemetry, error
