"""The figure of docs/performance.md: the cost of a message as the cluster grows, old and new."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

import plotly.graph_objects as go

from simcluster.lab.reports.export import save_figure
from simcluster.lab.reports.figure_style import log_axis, stroke, styled

Cost: TypeAlias = tuple[str, int, float | None, bool]
"""(case, nodes, microseconds per message or None after a timeout, whether this is the new code)."""

GOAL_US = 40.0


def draw(costs: Iterable[Cost], path: Path) -> None:
    """Write the figure of *costs* to *path*: a line for each case, dotted for the old code."""
    lines: dict[tuple[str, bool], list[tuple[int, float]]] = {}
    for case, nodes, cost_us, is_now in costs:
        if cost_us is not None:
            lines.setdefault((case, is_now), []).append((nodes, cost_us))
    colours = {case: stroke(index)["color"] for index, case in enumerate(dict.fromkeys(case for case, _ in lines))}
    figure = go.Figure()
    for (case, is_now), points in lines.items():
        numbers, costs_us = zip(*points, strict=True)
        line = {"color": colours[case], "dash": "solid" if is_now else "dot"}
        name = case.replace("one_by_one", "all to all by hand")
        figure.add_scatter(x=numbers, y=costs_us, name=name, line=line, mode="lines+markers", showlegend=is_now)
    figure.add_hline(GOAL_US, line={"color": "#7d8a97", "dash": "dash", "width": 1})
    heights = [cost_us for points in lines.values() for _, cost_us in points]
    ticks = sorted({nodes for points in lines.values() for nodes, _ in points})
    title = "nodes (dotted: before; dashed: the goal)"
    across = {"type": "log", "tickvals": ticks, "ticktext": [f"{nodes:,}" for nodes in ticks], "title": {"text": title}}
    up = {"title": {"text": "CPU time of a message (us)"}, **log_axis(heights)}
    save_figure(styled(figure, xaxis=across, yaxis=up), path, height_in=3.6)
