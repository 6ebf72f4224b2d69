"""Plotly figures of runs: `run.plot.convergence()`, or `convergence([a, b, c], x="bytes")` to compare several."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from simcluster.errors import Problem, UsageError
from simcluster.reports import timeline as timelines
from simcluster.reports.figure_style import LINES, SEND, Figures, log_axis, styled
from simcluster.reports.link_map import link_map
from simcluster.reports.x_axis import XAxis, XScale, node_lines, run_line, thinned
from simcluster.runs import words
from simcluster.runs.steps import STALENESS
from simcluster.runs.summary import ACCURACY, CONSENSUS, LOSS
from simcluster.runs.trace import bands

if TYPE_CHECKING:
    from simcluster.runs.folder import RunFolder

Panel = Literal["loss", "accuracy"]

RECORDED = "consensus"
"""The consensus distance in algorithms that measure it themselves, at the network's cost."""

MAX_LINKS = 40
FIRST_STEPS = 10


class RunPlots(Figures):
    """The figures of one run."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run

    def convergence(self, x: XAxis = "time", panels: Sequence[Panel] = ("loss", "accuracy")) -> go.Figure:
        """Loss and accuracy against time, step, bytes sent or energy. Raises UsageError if neither was recorded, or,
        with energy, if the power of a device is unknown.
        """
        return convergence([self._run], x, panels)

    def timeline(self, start_s: float = 0.0, end_s: float | None = None, max_bars: int = 3000) -> go.Figure:
        """Activity of each node, span by span, from *start_s* to *end_s* (default: when all nodes have made ten steps).

        At most *max_bars* spans are drawn, the earliest; the figure states where it stops.
        """
        until_s = self._end_of_first_steps(start_s) if end_s is None else end_s
        return timelines.gantt(self.activity, start_s, until_s, max_bars)

    def windows(self) -> dict[str, tuple[float, float]]:
        """Return (start, length), in s, of the first, middle and last ten steps and of the whole run, by name."""
        elapsed_s = float(self._run.summary["elapsed_s"])
        width_s = min(self._end_of_first_steps(0.0), elapsed_s)
        whole = {"whole run": (0.0, elapsed_s)}
        if width_s >= elapsed_s:
            return whole
        middle_s, last_s = (elapsed_s - width_s) / 2, elapsed_s - width_s
        return {"first steps": (0.0, width_s), "middle": (middle_s, width_s), "last steps": (last_s, width_s)} | whole

    def busy(self) -> go.Figure:
        """Busy share of every node's device over the run."""
        return timelines.busy(self.activity)

    def links(self) -> go.Figure:
        """Busy share and bytes of every link, in file order; of more than 40, of the busiest 40."""
        use: list[tuple[str, dict[str, Any]]] = list(self._run.summary["links"].items())
        if len(use) > MAX_LINKS:
            use = sorted(use, key=lambda row: -row[1]["busy_fraction"])[:MAX_LINKS]
        percents = [round(link["busy_fraction"] * 100, 3) for _, link in use]
        bars = go.Bar(
            orientation="h",
            y=[escape(name) for name, _ in use],
            x=percents,
            text=[words.size(link["bytes"]) for _, link in use],
            textposition="auto",
            marker={"color": SEND},
            hovertemplate="%{y}: busy %{x:.3g} %, %{text}<extra></extra>",
        )
        return styled(
            go.Figure(bars),
            height=90 + 30 * len(use),
            margin={"t": 16},
            xaxis={"title": {"text": "busy share of the run (%)"}, "range": [0, max([100.0, *percents])]},
            yaxis={"autorange": "reversed", "type": "category", "showgrid": False},
        )

    def staleness(self) -> go.Figure:
        """Number of each node's updates by staleness, stacked. Raises UsageError if none was recorded."""
        rows = _rows(self._run, STALENESS)
        if rows.empty:
            raise UsageError(Problem(STALENESS, "none recorded", "an algorithm that records staleness"))
        values = rows["value"].to_numpy()
        low, high = values.min(), values.max()
        whole = bool(np.all(values == np.round(values))) and high - low <= 60
        edges = np.arange(low - 0.5, high + 1.5) if whole else np.linspace(low, high, 31)
        figure = go.Figure()
        for index, node in enumerate(dict.fromkeys(rows["node"])):
            counts, _ = np.histogram(rows.loc[rows["node"] == node, "value"], bins=edges)
            marker = {"color": LINES[index % len(LINES)]}
            figure.add_bar(x=(edges[:-1] + edges[1:]) / 2, y=counts, name=escape(str(node)), marker=marker)
        return styled(
            figure,
            barmode="stack",
            legend={"traceorder": "normal"},
            margin={} if len(figure.data) > 1 else {"t": 16},  # without a legend
            height=340,
            xaxis={"title": {"text": "staleness (updates behind)"}},
            yaxis={"title": {"text": "updates"}},
        )

    def topology(self) -> go.Figure:
        """Busy share of the links, on a drawing of the topology."""
        from simcluster.topology import load

        summary, elapsed_s = self._run.summary, self._run.summary["elapsed_s"]
        computing = {name: node["compute_s"] / elapsed_s for name, node in summary["nodes"].items() if elapsed_s}
        return link_map(load(self._run.config["topology"]), summary["links"], computing)

    def consensus(self, x: XAxis = "time") -> go.Figure:
        """Distance of the nodes' weights from their mean. Raises UsageError if the run has none."""
        return consensus([self._run], x)

    @cached_property
    def activity(self) -> timelines.Activity:
        from simcluster.topology import load

        run, elapsed_s = self._run, self._run.summary["elapsed_s"]
        # The nodes of a large run on which nothing happened are not in its summary: the others have later ranks.
        of_rank = load(run.config["topology"]).workers if "resting" in run.summary else run.summary["nodes"]
        names = [escape(name) for name in of_rank]
        faults = bands(run.summary.get("faults", ()), elapsed_s)
        return timelines.Activity(names, run.spans, elapsed_s, run.rests, faults)

    def _end_of_first_steps(self, start_s: float) -> float:
        metrics = self._run.metrics
        later = metrics[metrics["time_s"] > start_s]
        if later.empty:
            return float(self._run.summary["elapsed_s"])
        reached = later[later["step"] >= later["step"].min() + FIRST_STEPS - 1]
        first_s = reached.groupby("node")["time_s"].min()
        missing = set(later["node"]) - set(first_s.index)
        return float(self._run.summary["elapsed_s"] if missing or first_s.empty else first_s.max())


def convergence(
    runs: Sequence[RunFolder], x: XAxis = "time", panels: Sequence[Panel] = ("loss", "accuracy")
) -> go.Figure:
    """Draw a line per run: evaluated loss or accuracy, or else the mean training loss; panels side by side.

    A single run also shows the training loss of each node. Raises UsageError for another *x*, and if none of *runs*
    recorded a panel's metric.
    """
    axis = XScale(runs, x)
    traces = {panel: _curves(runs, axis, panel) for panel in panels}
    shown = [panel for panel in panels if traces[panel]]
    if not shown:
        found = sorted({str(name) for run in runs for name in run.metrics["name"].unique()})
        expected = f"{LOSS}, {ACCURACY} or loss to have been recorded"
        raise UsageError(Problem("metrics", words.listing(found) or "none", expected))
    figure = make_subplots(rows=1, cols=len(shown), horizontal_spacing=0.12)
    for column, panel in enumerate(shown, start=1):
        for trace in traces[panel]:
            trace.showlegend = trace.showlegend is not False and (column == 1 or len(runs) == 1)
            figure.add_trace(trace, row=1, col=column)
        figure.update_xaxes(title_text=axis.title, rangemode="tozero", row=1, col=column)
        percent = {"tickformat": ".0%", "minallowed": 0, "maxallowed": 1.02} if panel == "accuracy" else {}
        figure.update_yaxes(title_text=panel, **percent, row=1, col=column)
    return styled(figure, height=360, hovermode="closest")


def _curves(runs: Sequence[RunFolder], axis: XScale, panel: Panel) -> list[go.Scatter]:
    traces: list[go.Scatter] = []
    for index, run in enumerate(runs):
        if panel == "accuracy":
            rows, alone, colour = _rows(run, ACCURACY), "accuracy of rank 0", LINES[2]
        else:
            rows, alone, colour = _rows(run, LOSS), "evaluated at rank 0", LINES[1]
            training = _rows(run, "loss")
            if len(runs) == 1:
                traces += node_lines(run, axis, training, "training, each node")
            if rows.empty:
                rows, alone = training.groupby("step", as_index=False)[["time_s", "value"]].mean(), "training, mean"
        if not rows.empty:
            line = run_line(runs, index, axis, thinned(rows), alone, colour)
            traces.append(line.update(legendgroup=line.name))
    return traces


def _rows(run: RunFolder, name: str) -> pd.DataFrame:
    metrics = run.metrics
    return metrics[metrics["name"] == name]


def consensus(runs: Sequence[RunFolder], x: XAxis = "time") -> go.Figure:
    """Draw the consensus distance, (1/n) sum |x_i - mean|^2 over all ranks' weights x_i after equal steps, per run.

    A single run also shows each node's share, |x_i - mean|^2. A point is at the time when the last rank had made the
    step. Raises UsageError for a run without distances.
    """
    scale, tables = XScale(runs, x), []
    for run in runs:  # taken off the clock, or else by its algorithm
        own = next((rows for name in (CONSENSUS, RECORDED) if not (rows := _rows(run, name)).empty), None)
        if own is None:
            expected = "`evaluate_consensus: true` in the experiment, or an algorithm with consensus_every"
            raise UsageError(Problem("consensus", f"none recorded by {run.label}", expected))
        tables.append(own)
    figure = go.Figure()
    for index, (run, rows) in enumerate(zip(runs, tables, strict=True)):
        if len(runs) == 1:
            figure.add_traces(node_lines(run, scale, rows, "each node"))
        means = rows.groupby("step", as_index=False).agg({"time_s": "max", "value": "mean"})
        figure.add_trace(run_line(runs, index, scale, means, "mean of all nodes", LINES[1], "after"))
    values = [float(value) for rows in tables for value in rows["value"]]
    # Exponents instead of prefixes: a squared distance has no unit to prefix.
    axis = {"title": {"text": "squared distance from the mean"}, "exponentformat": "power"}
    return styled(
        figure,
        height=360,
        hovermode="closest",
        xaxis={"title": {"text": scale.title}, "rangemode": "tozero"},
        yaxis=axis | (log_axis(values) if min(values) > 0 else {"rangemode": "tozero"}),
    )
