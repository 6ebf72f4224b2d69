"""Places recorded numbers on an x axis: time, steps, or what was sent or drawn from the wall by then."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from simcluster.errors import Problem, UsageError
from simcluster.reports.energy_by import EnergyBy
from simcluster.reports.figure_style import energy_scale, size_scale, time_scale
from simcluster.reports.timeline import FloatArray
from simcluster.runs.trace import nanoseconds

if TYPE_CHECKING:
    import pandas as pd

    from simcluster.runs.folder import RunFolder

XAxis = Literal["time", "step", "bytes", "energy"]


def check_axis(x: str) -> None:
    """Raises UsageError if *x* is none."""
    known = get_args(XAxis)
    if x not in known:
        raise UsageError(Problem("x", repr(x), f"{', '.join(known[:-1])} or {known[-1]}"))


def axes_of(runs: Sequence[RunFolder]) -> list[XAxis]:
    """Those that all *runs* have: energy only where every device says what it draws."""
    known = all(run.summary.get("joules") is not None for run in runs)
    return [x for x in get_args(XAxis) if known or x != "energy"]


class XScale:
    """Turns rows of metrics into positions on the x axis, all runs on one scale."""

    def __init__(self, runs: Sequence[RunFolder], x: XAxis) -> None:
        """Raises UsageError if *x* is energy, and a device does not say what it draws."""
        self.x = x
        self._by: dict[Path, _Sent | EnergyBy] = {}
        if x == "energy":
            self._by = {run.folder: EnergyBy(run) for run in runs}
        longest_s = max((run.summary["elapsed_s"] for run in runs), default=0.0)
        largest_bytes = max((run.summary["bytes_sent"] for run in runs), default=0.0)
        most_J = max(
            (float(self._by[run.folder].by(np.array([longest_s]))[0]) for run in runs if x == "energy"), default=0.0
        )
        clocks = {"virtual time" if run.summary["backend"] == "sim" else "measured time" for run in runs}
        clock = clocks.pop() if len(clocks) == 1 else "time"
        scales: dict[str, tuple[float, str]] = {
            "time": (time_scale(longest_s).unit_s, time_scale(longest_s).unit),
            "step": (1.0, ""),
            "bytes": size_scale(largest_bytes),
            "energy": energy_scale(most_J),
        }
        self._unit, unit = scales[x]
        name = {"time": clock, "step": "step", "bytes": "bytes sent", "energy": "energy"}[x]
        self.title = f"{name} ({unit})" if unit else name

    def of(self, run: RunFolder, rows: pd.DataFrame) -> FloatArray:
        if self.x == "step":
            return rows["step"].to_numpy(dtype=float)
        times_s = rows["time_s"].to_numpy(dtype=float)
        if self.x == "time":
            return np.asarray(times_s / self._unit)
        # A run's curves share one count: a long run has many sends.
        if run.folder not in self._by:
            self._by[run.folder] = _Sent(run)
        return np.asarray(self._by[run.folder].by(times_s) / self._unit)


def bytes_sent_by(run: RunFolder, times_s: FloatArray) -> FloatArray:
    """How many bytes all nodes together had sent by each of *times_s*: those of sends that had ended."""
    return _Sent(run).by(times_s)


class _Sent:
    """The ends of all sends of a run, in order, and the bytes sent by then."""

    def __init__(self, run: RunFolder) -> None:
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
