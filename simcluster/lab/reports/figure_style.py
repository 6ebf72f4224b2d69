"""The common style of all figures: colours, template, axes, captions, legends."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go
from plotly.colors import hex_to_rgb

from simcluster.lab.reports.scales import is_wide

COMPUTE = "#2f7fb8"
SEND = "#e0862b"
RECV = "#9aa5b1"
FAULT = "#d1495b"
# Colour-blind readers can distinguish these colours, on white as well as on dark grey.
LINES = (
    *("#2f7fb8", "#d1495b", "#2a9d74", "#e0862b", "#8a63c9"),
    *("#7d8a97", "#b0863a", "#c764a6", "#3fb1c5", "#6a8d2f"),
)

DASHES = ("solid", "dash", "dot", "dashdot")
MAX_LINES = len(LINES) * len(DASHES)
"""Limit on lines that readers can distinguish, by colour and dashes."""

_GRID = "rgba(128,136,146,0.22)"
_AXIS: dict[str, Any] = {
    "gridcolor": _GRID,
    "zerolinecolor": _GRID,
    "linecolor": "rgba(128,136,146,0.6)",
    "ticks": "outside",
    "tickcolor": "rgba(128,136,146,0.6)",
    "ticklen": 4,
    "automargin": True,
    "title": {"standoff": 10},
}

TEMPLATE = go.layout.Template(
    layout={
        "font": {"family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", "size": 13},
        "colorway": list(LINES),
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 56, "r": 12, "t": 44, "b": 48},
        "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0, "font": {"size": 12}},
        "hoverlabel": {"align": "left"},
        "xaxis": _AXIS,
        "yaxis": _AXIS,
        "bargap": 0.25,
    }
)


def measure_axis(title: str, heights: Sequence[float]) -> dict[str, Any]:
    """Return the layout of a y axis for *heights*: logarithmic for a wide range, else from 0."""
    return {"title": {"text": title}, **(log_axis(heights) if is_wide(heights) else {"rangemode": "tozero"})}


def log_axis(heights: Sequence[float]) -> dict[str, Any]:
    """Return a logarithmic axis for positive *heights*; a short axis also has ticks at 2 and 5."""
    if heights and max(heights) / min(heights) >= 300:
        return {"type": "log", "dtick": 1}
    return {"type": "log", "dtick": "D2", "tickformat": "~g"}


def styled(figure: go.Figure, **layout: Any) -> go.Figure:
    """Return *figure* in the common style, changed by *layout*."""
    figure.update_layout(template=TEMPLATE, **layout)
    return figure


def rgba(colour: str, alpha: float) -> str:
    """Return '#rrggbb' as a translucent colour."""
    red, green, blue = hex_to_rgb(colour)
    return f"rgba({red},{green},{blue},{alpha:g})"


CAPTION_PX, LINE_PX = 11, 15
WIDTH = 46
"""Letters per line of a caption, so that it fits below an axis on a phone."""


def titled(title: str, sentences: Sequence[str]) -> tuple[str, int]:
    """Return (axis title with *sentences* below it in small type, their height in pixels).

    The arguments are plain text.
    """
    lines = [escape(line) for sentence in sentences for line in textwrap.wrap(sentence, WIDTH)]
    if not lines:
        return escape(title), 0
    small = "<br>".join(f"<span style='font-size:{CAPTION_PX}px'>{line}</span>" for line in lines)
    return f"{escape(title)}<br>{small}", LINE_PX * len(lines) + 4


LEGEND_LETTERS = 84
"""Limit on the letters of a legend above a figure: they take two or three rows on a phone."""

ROW_PX, AXIS_PX = 20, 62


def named(figure: go.Figure, plot_px: int, caption_px: int = 0) -> dict[str, Any]:
    """Return a layout with room for a plot of height *plot_px*, the caption and the legend."""
    names = _names(figure)
    below_px = AXIS_PX + caption_px
    if len(names) < 2 or sum(len(name) + 4 for name in names) <= LEGEND_LETTERS:
        return {"height": plot_px + below_px + 44, "margin": {"t": 44, "b": below_px}}
    # Place the legend relative to the figure, not to the plot: on a phone, the plot ends higher.
    legend = {"orientation": "v", "yref": "container", "yanchor": "bottom", "y": 0, "x": 0}
    rows_px = ROW_PX * len(names) + 8
    return {"height": plot_px + below_px + rows_px + 28, "margin": {"t": 16, "b": below_px + rows_px}, "legend": legend}


def stroke(index: int) -> dict[str, str]:
    """Return the colour and the dashes of line number *index*."""
    return {"color": LINES[index % len(LINES)], "dash": DASHES[index // len(LINES) % len(DASHES)]}


def without_names(figure: go.Figure) -> go.Figure:
    """Return *figure* without its legend and the space for it: the page has a legend."""
    layout = figure.layout
    names = _names(figure)
    if len(names) < 2:
        return figure
    below_px = ROW_PX * len(names) + 8 if layout.legend.orientation == "v" else 0
    above_px = layout.margin.t - 16
    margin = {"t": 16, "b": layout.margin.b - below_px}
    return figure.update_layout(height=layout.height - below_px - above_px, margin=margin, showlegend=False)


def _names(figure: go.Figure) -> list[str]:
    return list(dict.fromkeys(trace.name for trace in figure.data if trace.name and trace.showlegend is not False))


class Figures:
    """A base class for a group of figures: each method is named after the figure that it returns."""

    def __dir__(self) -> list[str]:
        return drawn_by(type(self))

    def __repr__(self) -> str:
        return f"figures: {', '.join(f'{name}()' for name in dir(self))}"


def drawn_by(plots: type) -> list[str]:
    """Return the names of the figures that the class *plots* can draw."""
    return [
        name
        for name, method in vars(plots).items()
        if inspect.isfunction(method) and method.__annotations__.get("return") == "go.Figure" and name[0] != "_"
    ]
