"""Positions on an x axis: times, steps, bytes sent so far or energy used so far."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import get_args

import numpy as np
import plotly.graph_objects as go

from simcluster.errors import Problem, UsageError, raise_all
from simcluster.lab.reports.figure_style import LINES, rgba
from simcluster.lab.reports.report_tables import clock_name
from simcluster.lab.reports.scales import XAxis, energy_scale, size_scale, time_scale
from simcluster.lab.reports.sections.coverage import FloatArray
from simcluster.runs import words
from simcluster.runs.folder import RunFolder
from simcluster.runs.rows import MetricRows
from simcluster.runs.trace import nanoseconds


class XScale:
    """The positions of metrics' rows on the x axis, with one scale for all runs."""

    def __init__(self, runs: Sequence[RunFolder], x: XAxis) -> None:
        """Raise UsageError for an unknown *x*, or for "energy" if a device's power is unknown."""
        if x not in (known := get_args(XAxis)):
            raise UsageError("x", repr(x), f"{', '.join(known[:-1])} or {known[-1]}")
        self.x = x
        self._by: dict[Path, Callable[[FloatArray], FloatArray]] = {}
        longest_s = max((run.summary["elapsed_s"] for run in runs), default=0.0)
        name, unit = str(x), ""
        if x == "time":
            clocks = {clock_name(run.summary) for run in runs}
            name = clocks.pop() if len(clocks) == 1 else "time"
            self._unit, unit = time_scale(longest_s)
        elif x == "bytes":
            name = "bytes sent"
            self._unit, unit = size_scale(max((run.summary["bytes_sent"] for run in runs), default=0.0))
        elif x == "energy":
            self._by = {run.folder: joules_used(run) for run in runs}
            most_J = max((float(by(np.array([longest_s]))[0]) for by in self._by.values()), default=0.0)
            self._unit, unit = energy_scale(most_J)
        self.title = f"{name} ({unit})" if unit else name

    def of(self, run: RunFolder, rows: MetricRows) -> FloatArray:
        """Return the positions of *rows* of *run*, in the unit of the axis."""
        if self.x == "step":
            return np.asarray(rows["step"], dtype=float)
        times_s = np.asarray(rows["time_s"], dtype=float)
        if self.x == "time":
            return np.asarray(times_s / self._unit)
        # Sum up the bytes once for all curves of a run, since a long run has many sends.
        if run.folder not in self._by:
            self._by[run.folder] = bytes_sent(run)
        return np.asarray(self._by[run.folder](times_s) / self._unit)


MAX_NODE_LINES = 12
MAX_POINTS = 1500


def node_lines(run: RunFolder, scale: XScale, rows: MetricRows, name: str) -> list[go.Scatter]:
    """Return a thin line of *rows* per node, all under one *name*; none if there are too many."""
    nodes = list(dict.fromkeys(rows["node"]))
    if len(nodes) > MAX_NODE_LINES:
        return []
    return [
        go.Scatter(
            x=scale.of(run, own),
            y=own["value"],
            name=name,
            legendgroup=name,
            showlegend=index == 0,
            mode="lines",
            line={"width": 1, "color": rgba(LINES[0], 0.6)},
            meta=escape(str(node)),
            hovertemplate="%{meta}: %{y:.4g}<extra></extra>",
        )
        for index, node in enumerate(nodes)
        for own in [thinned(rows.where(rows["node"] == node))]
    ]


def run_line(
    runs: Sequence[RunFolder], index: int, scale: XScale, rows: MetricRows, alone: str, colour: str, word: str = "at"
) -> go.Scatter:
    """Return the line of *rows*, which belong to runs[index].

    If there is only one run, its line is called *alone* and drawn in *colour*. The hover text has
    *word* ("at" or "after") and the step.
    """
    name = alone if len(runs) == 1 else escape(runs[index].label)
    return go.Scatter(
        x=scale.of(runs[index], rows),
        y=rows["value"],
        customdata=[
            [step, words.seconds(time_s)]
            for step, time_s in zip(rows["step"].tolist(), rows["time_s"].tolist(), strict=True)
        ],
        name=name,
        mode="lines+markers" if len(rows) <= 60 else "lines",
        line={"width": 2.5, "color": colour if len(runs) == 1 else LINES[index % len(LINES)]},
        marker={"size": 6},
        hovertemplate=f"%{{y:.4g}} {word} step %{{customdata[0]}}, %{{customdata[1]}}",
    )


def thinned(rows: MetricRows) -> MetricRows:
    """Return about MAX_POINTS evenly spaced *rows*, to keep the figure of a long run small."""
    stride = -(-len(rows) // MAX_POINTS)
    return rows if stride <= 1 else rows.where(np.array([*range(0, len(rows), stride), len(rows) - 1]))


def bytes_sent(run: RunFolder) -> Callable[[FloatArray], FloatArray]:
    """Return a function from times, in s, to the bytes of all sends of *run* that had ended."""
    sends = [(nanoseconds(span.end_s), span.size_bytes) for _, span in run.spans if span.kind == "send"]
    # Sends beyond the trace are recorded only as sums per part of the run, and count at its end.
    sends += [
        (nanoseconds((part + 1) * rest.width_s), size_bytes)
        for rest in run.rests.values()
        for part, size_bytes in enumerate(rest.sent_bytes)
        if size_bytes
    ]
    sends.sort()
    ends_ns = np.array([end_ns for end_ns, _ in sends], dtype=np.int64)
    sums = np.concatenate([[0], np.cumsum([size_bytes for _, size_bytes in sends], dtype=np.int64)])

    def by(times_s: FloatArray) -> FloatArray:
        asked_ns = np.array([nanoseconds(time_s) for time_s in times_s], dtype=np.int64)
        return np.asarray(sums[np.searchsorted(ends_ns, asked_ns, side="right")], dtype=float)

    return by


def joules_used(run: RunFolder) -> Callable[[FloatArray], FloatArray]:
    """Return a function from times, in s, to the joules that all devices of *run* had used by then.

    All devices are on from the start. Raise UsageError, naming the devices, if the power of a
    device is unknown.
    """
    watts = _watts(json.dumps(run.config.get("topology")))
    works = [(rank, span.start_s, span.end_s, 1.0) for rank, span in run.spans if span.kind == "compute"]
    works += [
        (rank, part * rest.width_s, (part + 1) * rest.width_s, busy_s / rest.width_s)
        for rank, rest in run.rests.items()
        for part, busy_s in enumerate(rest.busy_s)
        if busy_s
    ]
    steps = [(0.0, sum(idle_W for idle_W, _ in watts))]
    for rank, start_s, end_s, share in works:
        more_W = share * (watts[rank][1] - watts[rank][0])
        steps += [(start_s, more_W), (end_s, -more_W)]
    steps.sort()
    times_s = np.array([time_s for time_s, _ in steps] + [max(steps[-1][0], run.summary["elapsed_s"])])
    drawn_W = np.cumsum([more_W for _, more_W in steps])
    joules = np.concatenate([[0.0], np.cumsum(drawn_W * np.diff(times_s))])
    return lambda asked_s: np.interp(asked_s, times_s, joules)


@lru_cache(maxsize=16)
def _watts(block: str) -> list[tuple[float, float]]:
    """Return (idle, busy) power of each device of the topology *block*, a JSON string.

    The result is cached, since the runs of a sweep share few topologies.
    """
    from simcluster.topology import load

    topology = load(json.loads(block))
    devices = {name: topology.device(name) for name in topology.workers}
    expected = "both for every device, to compute energy: {power_idle: 4 W, power_busy: 40 W}"
    problems = [
        Problem(f"topology.nodes.{name}.device", f"{device.name} without power_idle and power_busy", expected)
        for name, device in devices.items()
        if device.power_idle_W is None
    ]
    raise_all(problems)
    return [(device.power_idle_W or 0.0, device.power_busy_W or 0.0) for device in devices.values()]
