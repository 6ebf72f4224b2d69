"""Places recorded numbers on an x axis: time, steps, or bytes sent by then.

This file knows runs and units. It must not draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from simcluster.results.figure_style import size_scale, time_scale
from simcluster.results.timeline import FloatArray
from simcluster.results.trace import nanoseconds

if TYPE_CHECKING:
    import pandas as pd

    from simcluster.results.folder import Run

XAxis = Literal["time", "step", "bytes"]


class XScale:
    """Turns rows of metrics into positions on the x axis, all runs on one scale."""

    def __init__(self, runs: Sequence[Run], x: XAxis) -> None:
        self.x = x
        self._sent: dict[Path, _Sent] = {}
        self._scale = time_scale(max((run.summary["elapsed_s"] for run in runs), default=0.0))
        self._unit_bytes, unit = size_scale(max((run.summary["bytes_sent"] for run in runs), default=0.0))
        clocks = {"virtual time" if run.summary["backend"] == "sim" else "measured time" for run in runs}
        clock = clocks.pop() if len(clocks) == 1 else "time"
        self.title = {
            "time": f"{clock} ({self._scale.unit})",
            "step": "step",
            "bytes": f"bytes sent ({unit})",
        }[x]

    def of(self, run: Run, rows: pd.DataFrame) -> FloatArray:
        if self.x == "step":
            return rows["step"].to_numpy(dtype=float)
        if self.x == "time":
            return rows["time_s"].to_numpy() / self._scale.unit_s
        # A run's curves share one count: a long run has many sends.
        if run.folder not in self._sent:
            self._sent[run.folder] = _Sent(run)
        return self._sent[run.folder].by(rows["time_s"].to_numpy()) / self._unit_bytes


def bytes_sent_by(run: Run, times_s: FloatArray) -> FloatArray:
    """How many bytes all nodes together had sent by each of *times_s*: those of sends that had ended."""
    return _Sent(run).by(times_s)


class _Sent:
    """The ends of all sends of a run, in order, and the bytes sent by then."""

    def __init__(self, run: Run) -> None:
        sends = [(nanoseconds(s.end_s), s.size_bytes) for _, s in run.spans if s.kind == "send"]
        # What is summed up counts at the end of its part.
        sends += [
            (nanoseconds((part + 1) * rest.width_s), size_bytes)
            for rest in run.rests.values()
            for part, size_bytes in enumerate(rest.sent_bytes)
            if size_bytes
        ]
        sends.sort()
        self._ends_ns = np.array([end_ns for end_ns, _ in sends], dtype=np.int64)
        self._bytes = np.concatenate([[0], np.cumsum([size_bytes for _, size_bytes in sends], dtype=np.int64)])

    def by(self, times_s: FloatArray) -> FloatArray:
        asked_ns = np.array([nanoseconds(time_s) for time_s in times_s], dtype=np.int64)
        return np.asarray(self._bytes[np.searchsorted(self._ends_ns, asked_ns, side="right")], dtype=float)
