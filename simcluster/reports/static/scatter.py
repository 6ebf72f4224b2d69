"""A plotly scatter trace as matplotlib draws it: lines, markers, words, filled outlines."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from simcluster.errors import Problem, UsageError
from simcluster.reports.figure_style import LINES
from simcluster.reports.static.marks import DASHES, PT_PER_PX, Panel
from simcluster.reports.static.words import colour, plain

FEW = 20
"""Plotly draws markers on lines of fewer points, if nobody says what to draw."""

SYMBOLS: dict[str | None, str] = {
    **{None: "o", "circle": "o", "circle-open": "o", "square": "s", "square-open": "s", "diamond": "D", "star": "*"},
    **{"x": "x", "cross": "P", "triangle-up": "^", "triangle-down": "v", "line-ns": "|", "line-ns-open": "|"},
}
WHERE = {"top": (0, 1), "middle": (0, 0), "bottom": (0, -1), "left": (-1, 0), "center": (0, 0), "right": (1, 0)}


def draw_scatter(trace: Any, panel: Panel, index: int) -> Any:
    """Draws *trace*, number *index* of its figure; returns what a legend shows of it."""
    x, y = panel.x.places(_listed(trace.x)), panel.y.places(_listed(trace.y))
    mode = trace.mode or ("lines+markers" if len(x) < FEW else "lines")
    ink = trace.line.color or (trace.marker.color if isinstance(trace.marker.color, str) else None)
    line_ink = colour(ink or LINES[index % len(LINES)], trace.opacity)
    shown: list[Any] = []
    if trace.fill == "toself":
        shown.append(_fill(trace, panel, x, y))
    elif trace.fill not in (None, "none"):
        raise UsageError(Problem("figure", f"a trace filled {trace.fill!r}", "toself, or no filling"))
    width = PT_PER_PX * (2 if trace.line.width is None else trace.line.width)
    if "lines" in mode and width:
        style = "steps-post" if trace.line.shape == "hv" else "default"
        shown += panel.axes.plot(
            x, y, color=line_ink, linewidth=width, linestyle=DASHES[trace.line.dash], drawstyle=style
        )  # fmt: skip
    if "markers" in mode:
        shown.append(_markers(trace, panel, x, y, line_ink))
    if "text" in mode:
        _texts(trace, panel, x, y)
    return tuple(shown) if len(shown) != 1 else shown[0]


def _listed(values: Any) -> list[Any]:
    return [] if values is None else [None if _is_nan(value) else value for value in values]


def _is_nan(value: Any) -> bool:
    return isinstance(value, (float, np.floating)) and math.isnan(value)


def _fill(trace: Any, panel: Panel, x: np.ndarray, y: np.ndarray) -> Any:
    from matplotlib.patches import Polygon

    patch = None
    gaps = np.flatnonzero(np.isnan(x) | np.isnan(y))
    for part in np.split(np.arange(len(x)), gaps):
        corners = [(x[i], y[i]) for i in part if not (math.isnan(x[i]) or math.isnan(y[i]))]
        if len(corners) > 2:
            patch = Polygon(corners, facecolor=colour(trace.fillcolor, trace.opacity), edgecolor="none", zorder=1)
            panel.axes.add_patch(patch)
    panel.axes.update_datalim([(a, b) for a, b in zip(x, y, strict=True) if not (math.isnan(a) or math.isnan(b))])
    panel.axes.autoscale_view()
    return patch


def _markers(trace: Any, panel: Panel, x: np.ndarray, y: np.ndarray, ink: Any) -> Any:
    symbol = trace.marker.symbol
    if symbol not in SYMBOLS:
        raise UsageError(
            Problem("figure", f"markers of the shape {symbol!r}", f"one of {', '.join(filter(None, SYMBOLS))}")
        )
    size = trace.marker.size if trace.marker.size is not None else 6
    diameters = np.array(size if np.ndim(size) else [size] * len(x), dtype=float) * PT_PER_PX
    inks = trace.marker.color
    faces = (
        ([colour(one, trace.opacity) for one in inks] if np.ndim(inks) else colour(inks, trace.opacity))
        if inks is not None
        else ink
    )
    is_open = str(symbol).endswith("-open")
    return panel.axes.scatter(
        x,
        y,
        s=diameters**2,
        marker=SYMBOLS[symbol],
        facecolors="none" if is_open else faces,
        edgecolors=faces if is_open or symbol == "x" else "none",
        linewidths=PT_PER_PX * (trace.marker.line.width or 1.5 if is_open else 1.0),
        zorder=2.2,
    )


def _texts(trace: Any, panel: Panel, x: np.ndarray, y: np.ndarray) -> None:
    places = trace.textposition
    gap_pt = 3 + PT_PER_PX * float(np.max(trace.marker.size if trace.marker.size is not None else 6)) / 2
    for number, text in enumerate(_listed(trace.text)):
        if not text or math.isnan(x[number]) or math.isnan(y[number]):
            continue
        place = (places if isinstance(places, str) or places is None else places[number]) or "middle center"
        up, side = place.split()
        shift = np.add(WHERE[up], WHERE[side])
        panel.axes.annotate(
            plain(str(text)),
            (x[number], y[number]),
            xytext=(gap_pt * shift[0], gap_pt * shift[1]),
            textcoords="offset points",
            ha={-1: "right", 0: "center", 1: "left"}[int(shift[0])],
            va={-1: "top", 0: "center", 1: "bottom"}[int(shift[1])],
            fontsize=PT_PER_PX * (trace.textfont.size or 12),
        )
