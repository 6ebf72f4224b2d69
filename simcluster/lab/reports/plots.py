"""Plotly figures of runs.

Examples: `run.plot.convergence()` for one run, `convergence([a, b], x="bytes")` for several.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from html import escape
from typing import Any, Literal

import numpy as np
import plotly.graph_objects as go

from simcluster.errors import UsageError
from simcluster.lab.reports import timeline as timelines
from simcluster.lab.reports.figure_style import LINES, SEND, Figures, log_axis, styled
from simcluster.lab.reports.link_map import link_map
from simcluster.lab.reports.scales import RECORDED, XAxis
from simcluster.lab.reports.sections.activity import ActivitySpans, activity_of, end_of_first_steps
from simcluster.lab.reports.x_axis import XScale, node_lines, run_line, thinned
from simcluster.runs import words
from simcluster.runs.folder import RunFolder, topology_of
from simcluster.runs.steps import STALENESS
from simcluster.runs.summary import ACCURACY, CONSENSUS, LOSS

Panel = Literal["loss", "accuracy"]

MAX_LINKS = 40


class RunPlots(Figures):
    """The figures of one run."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run

    def convergence(self, x: XAxis = "time", panels: Sequence[Panel] = ("loss", "accuracy")) -> go.Figure:
        """Loss and accuracy against time, step, bytes sent or energy.

        Raise UsageError if neither was recorded, or if *x* is energy and the power of a device is
        unknown.
        """
        return convergence([self._run], x, panels)

    def timeline(self, start_s: float = 0.0, end_s: float | None = None, max_bars: int = 3000) -> go.Figure:
        """Activity of each node, span by span, from *start_s* to *end_s*.

        If *end_s* is None, the figure ends when all nodes have made ten steps. Only the earliest
        *max_bars* spans are drawn; the figure states where it stops.
        """
        until_s = end_of_first_steps(self._run, start_s) if end_s is None else end_s
        return timelines.gantt(self.activity, start_s, until_s, max_bars)

    def busy(self) -> go.Figure:
        """Busy share of every node's device over the run."""
        return timelines.busy(self.activity)

    def links(self) -> go.Figure:
        """Busy share and bytes of every link, or of the 40 busiest links."""
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
        """Number of each node's updates by staleness, stacked. Raise UsageError if none was recorded."""
        rows = self._run.rows.named(STALENESS)
        if not len(rows):
            raise UsageError(STALENESS, "none recorded", "an algorithm that records staleness")
        values = rows["value"]
        low, high = values.min(), values.max()
        whole = bool(np.all(values == np.round(values))) and high - low <= 60
        edges = np.arange(low - 0.5, high + 1.5) if whole else np.linspace(low, high, 31)
        figure = go.Figure()
        for index, node in enumerate(dict.fromkeys(rows["node"])):
            counts, _ = np.histogram(values[rows["node"] == node], bins=edges)
            marker = {"color": LINES[index % len(LINES)]}
            figure.add_bar(x=(edges[:-1] + edges[1:]) / 2, y=counts, name=escape(str(node)), marker=marker)
        return styled(
            figure,
            barmode="stack",
            legend={"traceorder": "normal"},
            margin={} if len(figure.data) > 1 else {"t": 16},  # leave no room for a legend
            height=340,
            xaxis={"title": {"text": "staleness (updates behind)"}},
            yaxis={"title": {"text": "updates"}},
        )

    def topology(self) -> go.Figure:
        """Busy share of the links, on a drawing of the topology."""
        summary = self._run.summary
        elapsed_s = self._run.summary["elapsed_s"]
        computing = {name: node["compute_s"] / elapsed_s for name, node in summary["nodes"].items() if elapsed_s}
        return link_map(topology_of(self._run), summary["links"], computing)

    def consensus(self, x: XAxis = "time") -> go.Figure:
        """Distance of the nodes' weights from their mean. Raise UsageError if the run has none."""
        return consensus([self._run], x)

    @cached_property
    def activity(self) -> ActivitySpans:
        return activity_of(self._run)


def convergence(
    runs: Sequence[RunFolder], x: XAxis = "time", panels: Sequence[Panel] = ("loss", "accuracy")
) -> go.Figure:
    """Draw a line per run: the evaluated loss or accuracy, or else the mean training loss.

    Panels are side by side. For a single run, the figure also shows the training loss of each node.
    Raise UsageError for an unknown *x*, and if no run recorded a metric of the panels.
    """
    axis = XScale(runs, x)
    traces = {panel: _curves(runs, axis, panel) for panel in panels}
    shown = [panel for panel in panels if traces[panel]]
    if not shown:
        found = sorted({str(name) for run in runs for name in run.rows["name"]})
        expected = f"{LOSS}, {ACCURACY} or loss to have been recorded"
        raise UsageError("metrics", words.listing(found) or "none", expected)
    # This import is slow: do it only once there is something to draw.
    from plotly.subplots import make_subplots

    figure = make_subplots(cols=len(shown), horizontal_spacing=0.12) if len(shown) > 1 else go.Figure()
    for column, panel in enumerate(shown, start=1):
        place = {"row": 1, "col": column} if len(shown) > 1 else {}
        for trace in traces[panel]:
            trace.showlegend = trace.showlegend is not False and (column == 1 or len(runs) == 1)
            figure.add_trace(trace, **place)
        figure.update_xaxes(title_text=axis.title, rangemode="tozero", **place)
        percent = {"tickformat": ".0%", "minallowed": 0, "maxallowed": 1.02} if panel == "accuracy" else {}
        figure.update_yaxes(title_text=panel, **percent, **place)
    return styled(figure, height=360, hovermode="closest")


def _curves(runs: Sequence[RunFolder], axis: XScale, panel: Panel) -> list[go.Scatter]:
    """Return the lines of one *panel*: evaluations if there are any, otherwise training losses."""
    traces: list[go.Scatter] = []
    for index, run in enumerate(runs):
        if panel == "accuracy":
            rows = run.rows.named(ACCURACY)
            alone = "accuracy of rank 0"
            colour = LINES[2]
        else:
            rows = run.rows.named(LOSS)
            alone = "evaluated at rank 0"
            colour = LINES[1]
            training = run.rows.named("loss")
            if len(runs) == 1:
                traces += node_lines(run, axis, training, "training, each node")
            if not len(rows):
                rows = training.by_step()
                alone = "training, mean"
        if len(rows):
            line = run_line(runs, index, axis, thinned(rows), alone, colour)
            traces.append(line.update(legendgroup=line.name))
    return traces


def consensus(runs: Sequence[RunFolder], x: XAxis = "time") -> go.Figure:
    """Draw the consensus distance of each run.

    The distance is (1/n) sum |x_i - mean|^2 over the weights x_i of all ranks after equal steps.
    For a single run, the figure also shows each node's |x_i - mean|^2. The time of a point is the
    time at which the last rank makes the step. Raise UsageError for a run without distances.
    """
    scale = XScale(runs, x)
    tables = []
    for run in runs:
        # Prefer distances that were evaluated off the clock to those that the algorithm recorded.
        own = next((rows for name in (CONSENSUS, RECORDED) if len(rows := run.rows.named(name))), None)
        if own is None:
            expected = "`evaluate_consensus: true` in the experiment, or an algorithm with consensus_every"
            raise UsageError("consensus", f"none recorded by {run.label}", expected)
        tables.append(own)
    figure = go.Figure()
    for index, (run, rows) in enumerate(zip(runs, tables, strict=True)):
        if len(runs) == 1:
            figure.add_traces(node_lines(run, scale, rows, "each node"))
        means = rows.by_step(latest=True)
        figure.add_trace(run_line(runs, index, scale, means, "mean of all nodes", LINES[1], "after"))
    values = [float(value) for rows in tables for value in rows["value"]]
    # Use exponents, since a squared distance has no unit that could take a prefix.
    axis = {"title": {"text": "squared distance from the mean"}, "exponentformat": "power"}
    return styled(
        figure,
        height=360,
        hovermode="closest",
        xaxis={"title": {"text": scale.title}, "rangemode": "tozero"},
        yaxis=axis | (log_axis(values) if min(values) > 0 else {"rangemode": "tozero"}),
    )
