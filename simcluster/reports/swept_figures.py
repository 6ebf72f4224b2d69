"""Lines against a swept key that answer a question: time to the target and where lines cross, speed-up, efficiency."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import unescape
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from simcluster.reports.figure_style import (
    LINES,
    TimeScale,
    is_wide,
    measure_axis,
    named,
    rgba,
    styled,
    time_scale,
    titled,
)
from simcluster.reports.swept_lines import Crossing, Line, SweptLine, SweptScale, crossings, soonest_of, swept_lines
from simcluster.runs import words

MAX_SENTENCES = 4
MARK = "rgba(128,136,146,0.9)"


def time_to_target(table: pd.DataFrame, keys: Sequence[str], x: str, measure: str, title: str) -> go.Figure:
    """*measure*, a time, against *x*; crossings of lines are marked, and those told at which the fastest changes."""
    scale, lines, cut = soonest_lines(table, keys, x, measure)
    heights = known(lines)
    unit = time_scale(max(heights, default=0.0))
    figure = go.Figure()
    for index, line in enumerate(lines):
        draw_band(figure, scale.places, _over(line.lows, unit), _over(line.highs, unit), index)
        figure.add_trace(swept_line(scale.places, _over(line.means, unit), line.label, index, _hover(unit)))
    met = meetings(scale, lines)
    _mark(figure, met, scale, unit, is_wide(heights))
    text, more_px = titled(scale.title, [*sentences(met, scale, lines, x), *cut])
    return styled(
        figure,
        **named(figure, 280, more_px),
        xaxis={**scale.axis, "title": {"text": text}},
        yaxis=measure_axis(f"{title} ({unit.unit})", heights),
        showlegend=len(lines) > 1,
        hovermode="closest",
    )


def soonest_lines(
    table: pd.DataFrame, keys: Sequence[str], x: str, measure: str
) -> tuple[SweptScale, list[SweptLine], list[str]]:
    """(the scale of *x*, the lines to be drawn, what is to be said if they are not all)."""
    scale, lines = swept_lines(table, keys, x, measure, every_seed=True)
    return scale, *soonest_of(lines)


def known(lines: Sequence[SweptLine]) -> list[float]:
    """All heights that there are."""
    return [height for line in lines for height in line.means if not math.isnan(height)]


def _over(numbers: Sequence[float], unit: TimeScale) -> list[float]:
    return [number / unit.unit_s for number in numbers]


def _hover(unit: TimeScale) -> str:
    return f"%{{x}}: %{{y:.4g}} {unit.unit}"


def meetings(scale: SweptScale, lines: Sequence[SweptLine]) -> list[Crossing]:
    """Return the crossings of *lines*, times in seconds, as drawn; none on an axis of words."""
    if scale.is_category:
        return []
    drawn = [Line(line.label, [None if math.isnan(height) else height for height in line.means]) for line in lines]
    return crossings(scale.places, drawn, scale.is_logarithmic, is_wide(known(lines)))


def sentences(met: Sequence[Crossing], scale: SweptScale, lines: Sequence[SweptLine], x: str) -> list[str]:
    """Return sentences, plain text, on the soonest line in each range, and on places that not every seed reached."""
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
        found += _soonest(lines)
    missing = [line for line in lines if any(math.isnan(height) for height in line.means)]
    for line in missing[:MAX_SENTENCES]:
        places = [scale.say(at) for at, height in zip(scale.places, line.means, strict=True) if math.isnan(height)]
        whose = f" of {unescape(line.label)}" if len(lines) > 1 else ""
        found.append(f"Not every run{whose} got there at {words.listing(places)}.")
    return found


def _soonest(lines: Sequence[SweptLine]) -> list[str]:
    """Return a sentence on the line that is soonest at every place with a time, if there is one."""
    columns = np.array([line.means for line in lines])
    reached = columns[:, ~np.isnan(columns).all(axis=0)]
    if not reached.size:
        return []
    best = {int(np.nanargmin(column)) for column in reached.T}
    return [f"{unescape(lines[best.pop()].label)} is soonest everywhere."] if len(best) == 1 else []


def _mark(figure: go.Figure, met: Sequence[Crossing], scale: SweptScale, unit: TimeScale, is_log: bool) -> None:
    if not met:
        return
    texts = [f"{scale.say(crossing.place)}, {words.seconds(crossing.height)}" for crossing in met]
    figure.add_trace(
        go.Scatter(
            x=[crossing.place for crossing in met],
            y=[crossing.height / unit.unit_s for crossing in met],
            mode="markers",
            name="crossing",
            marker={
                "size": [13 if crossing.is_lowest else 9 for crossing in met],
                "symbol": "circle-open",
                "color": MARK,
                "line": {"width": 2},
            },
            hovertext=[f"{text}: {c.before} before, {c.after} after" for text, c in zip(texts, met, strict=True)],
            hoverinfo="text",
            showlegend=False,
        )
    )
    for text, crossing in zip(texts, met, strict=True):
        if crossing.is_lowest:
            height = crossing.height / unit.unit_s
            figure.add_annotation(
                # On a logarithmic axis plotly places annotations at the logarithm.
                x=math.log10(crossing.place) if scale.is_logarithmic else crossing.place,
                y=math.log10(height) if is_log else height,
                text=text,
                showarrow=True,
                arrowhead=0,
                arrowcolor=MARK,
                ax=0,
                ay=-34,
                font={"size": 12},
            )


def swept_line(places: Iterable[Any], values: Any, label: str, index: int, hover: str) -> go.Scatter:
    """One line with its markers, in the colour of its *index*."""
    return go.Scatter(
        x=list(places),
        y=[None if value != value else value for value in values],
        name=label,
        legendgroup=label,
        mode="lines+markers",
        connectgaps=False,
        line={"width": 2.5, "color": LINES[index % len(LINES)]},
        marker={"size": 7},
        hovertemplate=hover,
    )


def draw_band(figure: go.Figure, places: Any, low: Any, high: Any, index: int) -> None:
    """From the least to the greatest of the seeds; nothing where there is one. A gap leaves one in the band."""
    low, high = np.asarray(low, dtype=float), np.asarray(high, dtype=float)
    known = ~np.isnan(low)
    if np.array_equal(low[known], high[known]):
        return
    around = list(places)
    for part in np.split(np.arange(len(low)), np.flatnonzero(~known)):
        part = part[known[part]]
        if len(part) > 1:
            xs = [around[i] for i in part]
            figure.add_trace(
                go.Scatter(
                    x=[*xs, *reversed(xs)],
                    y=[*high[part], *low[part][::-1]],
                    fill="toself",
                    fillcolor=rgba(LINES[index % len(LINES)], 0.18),
                    line={"width": 0},
                    mode="lines",
                    hoverinfo="skip",
                    showlegend=False,
                )
            )
