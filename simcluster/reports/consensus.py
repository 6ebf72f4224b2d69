"""Figure of the distance of a run's replicas from their mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd
import plotly.graph_objects as go

from simcluster.errors import Problem, UsageError
from simcluster.reports.figure_style import LINES, log_axis, styled
from simcluster.reports.x_axis import XAxis, XScale, check_axis, node_lines, run_line
from simcluster.runs.copies import CONSENSUS

if TYPE_CHECKING:
    from simcluster.runs.folder import RunFolder

RECORDED = "consensus"
"""The metric's name in algorithms that measure it themselves, at the network's cost."""


def consensus(runs: Sequence[RunFolder], x: XAxis = "time") -> go.Figure:
    """Draw the consensus distance, (1/n) sum |x_i - mean|^2 over all ranks' weights x_i after equal steps, per run.

    A single run also shows each node's share, |x_i - mean|^2. A point is at the time when the last rank had made the
    step. Raises UsageError for a run without distances.
    """
    check_axis(x)
    tables = [_distances(run) for run in runs]
    scale = XScale(runs, x)
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


def _distances(run: RunFolder) -> pd.DataFrame:
    """Return the distances among *run*'s metrics: those taken off the clock, or else those of its algorithm."""
    metrics = run.metrics
    for name in (CONSENSUS, RECORDED):
        rows = metrics[metrics["name"] == name]
        if not rows.empty:
            return rows
    expected = "`evaluate_consensus: true` in the experiment, or an algorithm with consensus_every"
    raise UsageError(Problem("consensus", f"none recorded by {run.label}", expected))
