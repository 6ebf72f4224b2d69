"""Plotly figures of an answered what-if: `found.plot.tornado()` and `found.plot.path()`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import plotly.graph_objects as go

from simcluster.lab.reports.figure_style import COMPUTE, FAULT, LINES, RECV, SEND, Figures, styled
from simcluster.lab.reports.scales import time_scale
from simcluster.lab.what_if.critical_path import PathPart
from simcluster.lab.what_if.effects import Effect
from simcluster.lab.what_if.goal import Goal
from simcluster.runs import words

MOST_BARS, MOST_SHARES = 15, 8
BAR_PX, FRAME_PX = 30, 110
LESS, MORE = "#2a9d74", FAULT

PATH_COLOURS = {"compute": COMPUTE, "link": SEND, "nic": LINES[8], "latency": LINES[4], "idle": RECV}
PATH_WORDS = {
    "compute": "{} computing",
    "link": "bandwidth of {}",
    "nic": "network card of {}",
    "latency": "latency of {}",
    "idle": "{} waiting for a timer",
}


class WhatIfPlots(Figures):
    """The figures of one answered what-if."""

    def __init__(
        self, goal: Goal, base: Mapping[int, float], effects: Sequence[Effect], parts: Sequence[PathPart], end_s: float
    ) -> None:
        """*base* maps each seed to the goal's baseline value.

        *parts* are the parts of the critical path, which ends at *end_s*.
        """
        self._goal = goal
        self._base = base
        self._effects = effects
        self._parts = parts
        self._end_s = end_s

    def tornado(self) -> go.Figure:
        """A bar per change, the greatest effect on top: the share by which the goal rises or falls.

        Whiskers span the seeds. Changes without effect, and those beyond the first 15, are left
        out.
        """
        shown = [found for found in self._effects if found.relative][:MOST_BARS][::-1]
        labels = [found.change.label.partition(": ") for found in shown]
        low = [100 * ((found.relative or 0.0) - (found.lowest or 0.0)) for found in shown]
        high = [100 * ((found.highest or 0.0) - (found.relative or 0.0)) for found in shown]
        seeds = len(self._base) > 1
        figure = go.Figure(
            go.Bar(
                orientation="h",
                x=[100 * (found.relative or 0.0) for found in shown],
                # Use two lines, the part and then the change, to leave room for the bar on a phone.
                y=[f"<b>{escape(part)}</b><br>{escape(what)}" for part, _, what in labels],
                marker={"color": [LESS if found.gain > 0 else MORE for found in shown]},
                error_x={"type": "data", "symmetric": False, "array": high, "arrayminus": low} if seeds else None,
                customdata=[self._goal.value(found.value) for found in shown],
                hovertemplate="%{y}<br>%{x:.3g} %: %{customdata}<extra></extra>",
            )
        )
        figure.add_vline(x=0, line={"color": "rgba(128,136,146,0.8)", "width": 1})
        return styled(
            figure,
            xaxis={"title": {"text": "effect (%)"}},
            yaxis={"title": None, "ticks": "", "gridcolor": "rgba(0,0,0,0)"},
            height=FRAME_PX + BAR_PX * max(3, len(shown)) + 10 * len(shown),
            showlegend=False,
            margin={"l": 20, "r": 16, "t": 16, "b": 52},
        )

    def path(self) -> go.Figure:
        """The critical path as one bar: what the run waited for, and how long."""
        parts = self._parts
        unit_s, unit = time_scale(self._end_s)
        bars = [
            (PATH_WORDS[part.kind].format(part.where), part.seconds, part.share, PATH_COLOURS[part.kind])
            for part in parts[:MOST_SHARES]
        ]
        rest_s = sum(part.seconds for part in parts[MOST_SHARES:])
        if rest_s:
            bars.append(("all else", rest_s, rest_s / sum(part.seconds for part in parts), "rgba(128,136,146,0.4)"))
        figure = go.Figure()
        for number, (name, seconds, share, colour) in enumerate(bars):
            figure.add_bar(
                orientation="h",
                x=[seconds / unit_s],
                y=[""],
                name=f"{escape(name)}, {words.share(share)}",
                marker={"color": colour, "line": {"color": "rgba(255,255,255,0.7)", "width": 1}},
                opacity=max(0.45, 1 - 0.12 * sum(other[3] == colour for other in bars[:number])),
                hovertemplate=f"{escape(name)}: {words.seconds(seconds)}, {words.share(share)}<extra></extra>",
            )
        return styled(
            figure,
            barmode="stack",
            showlegend=True,
            height=150 + 24 * len(bars),
            xaxis={"title": {"text": f"time on the critical path ({unit})"}},
            yaxis={"visible": False},
            legend={"orientation": "v", "y": -0.6, "yanchor": "top", "x": 0, "traceorder": "normal"},
            margin={"l": 12, "r": 12, "t": 8, "b": 48},
        )
