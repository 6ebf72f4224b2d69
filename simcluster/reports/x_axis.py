"""Recorded numbers on an x axis: time, steps, bytes sent or energy consumed by then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go

from simcluster.errors import Problem, UsageError
from simcluster.reports.figure_style import LINES, energy_scale, rgba, size_scale, time_scale
from simcluster.reports.timeline import FloatArray
from simcluster.runs.trace import nanoseconds

if TYPE_CHECKING:
    from simcluster.runs.folder import RunFolder
    from simcluster.topology import Topology


XAxis = Literal["time", "step", "bytes", "energy"]


def check_axis(x: str) -> None:
    """Raise UsageError if *x* is not an axis."""
    known = get_args(XAxis)
    if x not in known:
        raise UsageError(Problem("x", repr(x), f"{', '.join(known[:-1])} or {known[-1]}"))


def axes_of(runs: Sequence[RunFolder]) -> list[XAxis]:
    """Return the axes that all *runs* have: energy only if the power of every device is known."""
    known = all(run.summary.get("joules") is not None for run in runs)
    return [x for x in get_args(XAxis) if known or x != "energy"]


class XScale:
    """Positions of rows of metrics on the x axis, with one scale for all runs."""

    def __init__(self, runs: Sequence[RunFolder], x: XAxis) -> None:
        """Raise UsageError if *x* is energy and the power of a device is unknown."""
        self.x = x
        self._by: dict[Path, BytesSent | EnergyBy] = {}
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
        # The curves of a run share one count, since a long run has many sends.
        if run.folder not in self._by:
            self._by[run.folder] = BytesSent(run)
        return np.asarray(self._by[run.folder].by(times_s) / self._unit)


MAX_NODE_LINES = 12
MAX_POINTS = 1500


def node_lines(run: RunFolder, scale: XScale, rows: pd.DataFrame, name: str) -> list[go.Scatter]:
    """Return thin lines of *rows*, one per node, under one *name*; none if the nodes are too many to tell apart."""
    nodes = list(dict.fromkeys(rows["node"]))
    if len(nodes) > MAX_NODE_LINES:
        return []
    return [
        go.Scatter(
            x=scale.of(run, own),
            y=own["value"].to_numpy(),
            name=name,
            legendgroup=name,
            showlegend=index == 0,
            mode="lines",
            line={"width": 1, "color": rgba(LINES[0], 0.6)},
            meta=escape(str(node)),
            hovertemplate="%{meta}: %{y:.4g}<extra></extra>",
        )
        for index, node in enumerate(nodes)
        for own in [thinned(rows[rows["node"] == node])]
    ]


def thinned(rows: pd.DataFrame) -> pd.DataFrame:
    """Return every k-th row and the last, so that the figure of a long run stays small."""
    stride = -(-len(rows) // MAX_POINTS)
    return rows if stride <= 1 else pd.concat([rows.iloc[::stride], rows.iloc[[-1]]])


class BytesSent:
    """Ends of all sends of a run, in order, and the bytes sent by then."""

    def __init__(self, run: RunFolder) -> None:
        sends = [(nanoseconds(s.end_s), s.size_bytes) for _, s in run.spans if s.kind == "send"]
        # Sends that are summed up count at the end of their part.
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


class EnergyBy:
    """Joules of all devices of *run* together by any moment. All are switched on from the start."""

    def __init__(self, run: RunFolder) -> None:
        """Raise UsageError, naming the devices of the run's topology without a known power."""
        from simcluster.topology import load

        topology = load(run.config["topology"])
        _check_power(topology)
        steps = [(0.0, sum(_watts(topology, rank)[0] for rank in range(len(topology.workers))))]
        for rank, start_s, end_s, share in _works(run):
            idle_W, busy_W = _watts(topology, rank)
            more_W = share * (busy_W - idle_W)
            steps += [(start_s, more_W), (end_s, -more_W)]
        steps.sort()
        self._times_s = np.array([time_s for time_s, _ in steps] + [max(steps[-1][0], run.summary["elapsed_s"])])
        watts = np.cumsum([more_W for _, more_W in steps])
        self._joules = np.concatenate([[0.0], np.cumsum(watts * np.diff(self._times_s))])

    def by(self, times_s: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.asarray(np.interp(times_s, self._times_s, self._joules), dtype=np.float64)


def _works(run: RunFolder) -> Iterator[tuple[int, float, float, float]]:
    """Yield (rank, from, to, working share of the device in that time)."""
    for rank, span in run.spans:
        if span.kind == "compute":
            yield rank, span.start_s, span.end_s, 1.0
    for rank, rest in run.rests.items():
        for part, busy_s in enumerate(rest.busy_s):
            if busy_s:
                yield rank, part * rest.width_s, (part + 1) * rest.width_s, busy_s / rest.width_s


def _watts(topology: Topology, rank: int) -> tuple[float, float]:
    """Return (idle, busy) of a device with both."""
    device = topology.nodes[topology.workers[rank]].device
    assert device is not None, "a worker has a device"
    assert device.power_idle_W is not None, "checked by _check_power"
    assert device.power_busy_W is not None, "they come together"
    return device.power_idle_W, device.power_busy_W


def _check_power(topology: Topology) -> None:
    problems = [
        Problem(
            f"topology.nodes.{name}.device",
            f"{device.name} without power_idle and power_busy",
            "both for every device, to compute energy: {power_idle: 4 W, power_busy: 40 W}",
        )
        for name in topology.workers
        if (device := topology.nodes[name].device) is not None and device.power_idle_W is None
    ]
    if problems:
        raise UsageError(problems)
