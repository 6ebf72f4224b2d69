"""Words around a figure, in lines that fit a phone: a caption below, names of lines above or, if long, below."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

CAPTION_PX, LINE_PX = 11, 15
WIDTH = 46
"""Letters of a caption's line: what a phone has room for beside an axis."""


def titled(title: str, sentences: Sequence[str]) -> tuple[str, int]:
    """(an axis title with *sentences* below it, small; the height in pixels of what was added). None are HTML yet."""
    lines = [escape(line) for sentence in sentences for line in textwrap.wrap(sentence, WIDTH)]
    if not lines:
        return escape(title), 0
    small = "<br>".join(f"<span style='font-size:{CAPTION_PX}px'>{line}</span>" for line in lines)
    return f"{escape(title)}<br>{small}", LINE_PX * len(lines) + 4


LEGEND_LETTERS = 84
"""So many letters in names fit above a figure on a phone, in two or three rows."""

ROW_PX, AXIS_PX = 20, 62


def named(figure: go.Figure, plot_px: int, caption_px: int = 0) -> dict[str, Any]:
    """The layout that has room for a plot of *plot_px*, the caption and the names in the legend."""
    names = list(dict.fromkeys(trace.name for trace in figure.data if trace.name and trace.showlegend is not False))
    above = len(names) < 2 or sum(len(name) + 4 for name in names) <= LEGEND_LETTERS
    below_px = AXIS_PX + caption_px
    if above:
        return {"height": plot_px + below_px + 44, "margin": {"t": 44, "b": below_px}}
    # At the bottom of the figure, wherever its plot ends: on a phone it ends higher.
    legend = {"orientation": "v", "yref": "container", "yanchor": "bottom", "y": 0, "x": 0}
    rows_px = ROW_PX * len(names) + 8
    return {"height": plot_px + below_px + rows_px + 28, "margin": {"t": 16, "b": below_px + rows_px}, "legend": legend}
