"""Draw lines against a swept key, such as the time to the target, and mark where lines cross."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import unescape
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from simcluster.lab.reports.figure_style import measure_axis, named, rgba, stroke, styled, titled
from simcluster.lab.reports.scales import is_wide, time_scale
from simcluster.lab.reports.sweeps.lines import (
    TARGET,
    Crossing,
    SweptLine,
    SweptScale,
    crossings,
    soonest_of,
    swept_lines,
)
from simcluster.runs import words

MAX_SENTENCES = 4
MARK = "rgba(128,136,146,0.9)"


def time_to_target(table: pd.DataFrame, keys: Sequence[str], x: str) -> go.Figure:
    """Draw the time to the target against *x*.

    Marks show where lines cross; sentences describe the crossings at which the fastest line
    changes.
    """
    scale, lines, cut = soonest_lines(table, keys, x)
    heights = known(lines)
    unit_s, unit = time_scale(max(heights, default=0.0))
    figure = draw_lines(scale.places, lines, f"%{{x}}: %{{y:.4g}} {unit}", unit_s)
    met = meetings(scale, lines)
    if met:
        _mark(figure, met, scale, unit_s, is_wide(heights))
    text, more_px = titled(scale.title, [*sentences(met, scale, lines, x), *cut])
    return styled(
        figure,
        **named(figure, 280, more_px),
        xaxis={**scale.axis, "title": {"text": text}},
        yaxis=measure_axis(f"time to the target ({unit})", heights),
        showlegend=len(lines) > 1,
        hovermode="closest",
    )


def soonest_lines(table: pd.DataFrame, keys: Sequence[str], x: str) -> tuple[SweptScale, list[SweptLine], list[str]]:
    """Return (the scale of *x*, the lines to draw, sentences about lines that are left out)."""
    scale, lines = swept_lines(table, keys, x, TARGET, every_seed=True)
    return scale, *soonest_of(lines)


def known(lines: Sequence[SweptLine]) -> list[float]:
    """Return the heights of all *lines*, without gaps."""
    return [height for line in lines for height in line.means if not math.isnan(height)]


def meetings(scale: SweptScale, lines: Sequence[SweptLine]) -> list[Crossing]:
    """Return the crossings of *lines*, with heights in s, as drawn; none on a categorical axis."""
    if scale.is_category:
        return []
    return crossings(
        scale.places, {line.label: line.means for line in lines}, scale.is_logarithmic, is_wide(known(lines))
    )


def sentences(met: Sequence[Crossing], scale: SweptScale, lines: Sequence[SweptLine], x: str) -> list[str]:
    """Return plain sentences on the fastest line in each range, and on missed targets."""
    last = x.rsplit(".", 1)[-1]
    told = [
        f"Below {last} {scale.say(crossing.place)} the soonest is {unescape(crossing.before)}, above it "
        f"{unescape(crossing.after)} ({words.seconds(crossing.height)} there)."
        for crossing in met
        if crossing.is_lowest
    ]
    found = told[:MAX_SENTENCES]
    if len(told) > MAX_SENTENCES:
        found.append(f"And {len(told) - MAX_SENTENCES} more crossings.")
    if not told and len(lines) > 1:
        columns = np.array([line.means for line in lines])
        reached = columns[:, ~np.isnan(columns).all(axis=0)]
        best = set(np.nanargmin(reached, axis=0).tolist())
        is_first = reached == np.nanmin(reached, axis=0)
        if is_first.all():
            found.append("All lines are the same.")
        elif len(best) == 1 and (is_first.sum(axis=0) == 1).all():  # If lines tie, none is fastest.
            found.append(f"{unescape(lines[best.pop()].label)} is soonest everywhere.")
    missing = [line for line in lines if any(math.isnan(height) for height in line.means)]
    for line in missing[:MAX_SENTENCES]:
        places = [scale.say(at) for at, height in zip(scale.places, line.means, strict=True) if math.isnan(height)]
        whose = f" of {unescape(line.label)}" if len(lines) > 1 else ""
        found.append(f"Not every run{whose} got there at {words.listing(places)}.")
    return found


def _mark(figure: go.Figure, met: Sequence[Crossing], scale: SweptScale, unit_s: float, is_log: bool) -> None:
    texts = [f"{scale.say(crossing.place)}, {words.seconds(crossing.height)}" for crossing in met]
    marker = {"symbol": "circle-open", "color": MARK, "line": {"width": 2}}
    figure.add_scatter(
        x=[crossing.place for crossing in met],
        y=[crossing.height / unit_s for crossing in met],
        mode="markers",
        name="crossing",
        marker={"size": [13 if crossing.is_lowest else 9 for crossing in met], **marker},
        hovertext=[f"{text}: {c.before} before, {c.after} after" for text, c in zip(texts, met, strict=True)],
        hoverinfo="text",
        showlegend=False,
    )
    arrow = {"showarrow": True, "arrowhead": 0, "arrowcolor": MARK, "ax": 0, "ay": -34, "font": {"size": 12}}
    for text, crossing in zip(texts, met, strict=True):
        if crossing.is_lowest:
            height = crossing.height / unit_s
            # On a logarithmic axis, plotly expects the logarithm of an annotation's position.
            x = math.log10(crossing.place) if scale.is_logarithmic else crossing.place
            figure.add_annotation(x=x, y=math.log10(height) if is_log else height, text=text, **arrow)


def draw_lines(places: Sequence[Any], lines: Sequence[SweptLine], hover: str, unit: float = 1.0) -> go.Figure:
    """Return a figure of *lines* with bands over seeds; heights are divided by *unit*."""
    figure = go.Figure()
    for index, line in enumerate(lines):
        means, lows, highs = ([n / unit for n in numbers] for numbers in (line.means, line.lows, line.highs))
        draw_band(figure, places, lows, highs, line.label, index)
        figure.add_trace(swept_line(places, means, line.label, index, hover))
    return figure


def swept_line(places: Iterable[Any], values: Any, label: str, index: int, hover: str) -> go.Scatter:
    """Return one line with markers, in the colour of line number *index*."""
    return go.Scatter(
        x=list(places),
        y=[None if value != value else value for value in values],
        name=label,
        legendgroup=label,
        mode="lines+markers",
        connectgaps=False,
        line={"width": 2.5, **stroke(index)},
        marker={"size": 7},
        hovertemplate=hover,
    )


def draw_band(figure: go.Figure, places: Any, low: Any, high: Any, label: str, index: int) -> None:
    """Add a band from *low* to *high*, with gaps at NaN; do nothing if *low* equals *high*."""
    low, high = np.asarray(low, dtype=float), np.asarray(high, dtype=float)
    known = ~np.isnan(low)
    if np.array_equal(low[known], high[known]):
        return
    around = list(places)
    for part in np.split(np.arange(len(low)), np.flatnonzero(~known)):
        part = part[known[part]]
        if len(part) > 1:
            xs = [around[i] for i in part]
            figure.add_scatter(
                x=[*xs, *reversed(xs)],
                y=[*high[part], *low[part][::-1]],
                fill="toself",
                fillcolor=rgba(stroke(index)["color"], 0.18),
                legendgroup=label,
                line={"width": 0},
                mode="lines",
                hoverinfo="skip",
                showlegend=False,
            )
