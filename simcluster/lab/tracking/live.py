"""Send points of a run in progress to trackers, as a draft that the finished run replaces.

A point is the mean of one metric at one step, so it is written once every node has passed that
step. Each tracker has a thread: the run never waits for a tracker, and a failure ends only its own
draft.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from simcluster.lab.tracking.exporting import opened
from simcluster.lab.tracking.handover import Heading, RunDraft, TrackedValue, name_of, values_of
from simcluster.runs.record import Metric
from simcluster.watching.board import RunInfo
from simcluster.watching.telling import NodeRows

EVERY_S = 1.0
"""Least time between two deliveries of points."""

END_S = 60.0
"""Limit on the wait for a tracker at the end of the run; after it, the tracker counts as failed."""


Message = Heading | list[TrackedValue] | bool
"""A message to a tracker's thread: a new run, points, or the end (True keeps the draft)."""


class Points:
    """The points of one run, made from its nodes' rows; each point is returned once.

    After a restart from a checkpoint, for example, a row may belong to a point that was already
    returned. Such a row is ignored here: the finished run has it.
    """

    def __init__(self, offset_s: float = 0.0) -> None:
        self._offset_s = offset_s
        self._pending: dict[int, list[Metric]] = defaultdict(list)  # by step
        self._returned: set[tuple[str, int]] = set()
        self._read: dict[str, tuple[int, int]] = {}

    def take(self, nodes: Sequence[NodeRows], *, is_over: bool = False) -> list[TrackedValue]:
        """Return the new points of all steps that every surviving node has passed.

        If *is_over*, return all remaining points.
        """
        passed = []
        for node in nodes:
            metrics, evaluations = self._read.get(node.name, (0, 0))
            counts = len(node.metrics), len(node.evaluations)  # Nodes keep adding rows.
            if not node.is_lost:
                passed.append(node.metrics[counts[0] - 1].step if counts[0] else 0)
            for metric in [*node.metrics[metrics : counts[0]], *node.evaluations[evaluations : counts[1]]]:
                if (metric.name, metric.step) not in self._returned:
                    self._pending[metric.step].append(metric._replace(time_s=metric.time_s + self._offset_s))
            self._read[node.name] = counts
        ready = sorted(step for step in self._pending if is_over or step < min(passed, default=0))
        rows = [row for step in ready for row in self._pending.pop(step)]
        values = [value for value in values_of(rows) if (value.name, value.step) not in self._returned]
        self._returned |= {(row.name, row.step) for row in rows} | {(value.name, value.step) for value in values}
        return values


class LiveTracking:
    """A follower that sends the points of a run to *trackers*, which are pairs of (name, into).

    A backend calls `begin` and `look`; the caller of the backend calls `end`. *offset_s* is the
    run's time at which the backend's clock starts; it is not 0 for a resumed run.
    """

    def __init__(self, trackers: Sequence[tuple[str, str | None]], now: Callable[[], float] = time.monotonic) -> None:
        self._writers = [_Writer(*tracker) for tracker in trackers]
        self._now = now
        self._next_s = 0.0
        self._points = Points()
        self._last: Callable[[], Sequence[NodeRows]] = list
        self.offset_s = 0.0
        self.config: Mapping[str, Any] = {}

    def begin(self, run: RunInfo) -> None:
        """Begin the draft of a run; a new attempt of the run replaces the previous draft."""
        self._points = Points(self.offset_s)
        name = name_of(run.algorithm, run.topology, self.config, run.seed)
        heading = Heading(name, run.name, run.backend, time.time())
        for writer in self._writers:
            writer.put(heading)

    def look(self, rows: Callable[[], Sequence[NodeRows]]) -> None:
        """Deliver the new points, at most once per EVERY_S; *rows* returns all rows."""
        self._last = rows
        if self._now() >= self._next_s:
            self._next_s = self._now() + EVERY_S
            self._deliver()

    def end(self, *, keep: bool) -> dict[str, str]:
        """Remove the drafts, or *keep* them with all points; return failed tracker -> reason."""
        if keep:
            self._deliver(is_over=True)
        for writer in self._writers:
            writer.put(keep)
        return {writer.to: why for writer in self._writers if (why := writer.failure())}

    def _deliver(self, *, is_over: bool = False) -> None:
        if values := self._points.take(self._last(), is_over=is_over):
            for writer in self._writers:
                writer.put(values)


class _Writer(threading.Thread):
    """A thread that writes drafts to one tracker."""

    def __init__(self, to: str, into: str | None) -> None:
        super().__init__(name=f"tracker {to}", daemon=True)
        self.to, self._into = to, into
        self._queue: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._error, self._is_dropped = "", False

    def put(self, message: Message) -> None:
        if self.ident is None and not isinstance(message, bool):
            self.start()
        self._is_dropped = message is False
        self._queue.put(message)

    def failure(self) -> str:
        """Wait until the thread ends, for at most END_S; return why the tracker failed, else ""."""
        if self.ident is None:
            return ""
        self.join(END_S)
        return f"{self.to} has not answered for {END_S:g} s" if self.is_alive() else self._error

    def run(self) -> None:
        draft: RunDraft | None = None
        try:
            tracker = opened(self.to, self._into)
            while not isinstance(message := self._queue.get(), bool):
                if self._is_dropped:
                    continue
                if isinstance(message, list):
                    assert draft is not None
                    draft.add(message)
                    continue
                if draft is not None:
                    draft.close(keep=False)
                draft = tracker.draft(message)
            if draft is not None:
                draft.close(keep=message)
        except Exception as error:  # A tracker's package may raise anything.
            self._error = f"{self.to} failed with {type(error).__name__}: {error}"
