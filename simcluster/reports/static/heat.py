"""A plotly heat map as matplotlib draws it."""

from __future__ import annotations

from typing import Any

import numpy as np

from simcluster.reports.static.axis import PlainAxis
from simcluster.reports.static.marks import PT_PER_PX, Panel
from simcluster.reports.static.words import colour, plain, readable_on

MOST_CELLS = 500
"""A map of more is a picture in the file: as outlines it would be megabytes."""


def draw_heat(trace: Any, panel: Panel) -> None:
    """Draws *trace* with its scale of colours and what stands in its cells."""
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    z = np.array([[np.nan if cell is None else float(cell) for cell in row] for row in trace.z])
    x, y = _middles(panel.x, trace.x, z.shape[1]), _middles(panel.y, trace.y, z.shape[0])
    steps = [(float(at), colour(ink, trace.opacity)) for at, ink in trace.colorscale]
    colours = LinearSegmentedColormap.from_list("figure", steps)
    low = trace.zmin if trace.zmin is not None else np.nanmin(z)
    high = trace.zmax if trace.zmax is not None else np.nanmax(z)
    norm = Normalize(float(low), float(high))
    gap_pt = PT_PER_PX * max(trace.xgap or 0, trace.ygap or 0)
    mesh = panel.axes.pcolormesh(
        _edges(x), _edges(y), np.ma.masked_invalid(z), cmap=colours, norm=norm, linewidth=gap_pt,
        edgecolors="white" if gap_pt else "face", rasterized=z.size > MOST_CELLS,
    )  # fmt: skip
    if trace.text is not None:
        _texts(trace, panel, x, y, z, lambda value: colours(norm(value)))
    if trace.showscale is not False:
        figure = panel.axes.figure
        bar = figure.colorbar(mesh, ax=panel.axes, fraction=0.05, pad=0.02)
        bar.outline.set_visible(False)
        suffix = trace.colorbar.ticksuffix or ""
        bar.formatter = lambda value, _: f"{value:g}{suffix}"
        bar.update_ticks()
        bar.set_label(plain(trace.colorbar.title.text))


def _middles(axis: PlainAxis, values: Any, count: int) -> np.ndarray:
    return np.arange(count, dtype=float) if values is None else axis.places(list(values))


def _edges(middles: np.ndarray) -> np.ndarray:
    if len(middles) == 1:
        return np.array([middles[0] - 0.5, middles[0] + 0.5])
    between = (middles[:-1] + middles[1:]) / 2
    return np.concatenate([[2 * middles[0] - between[0]], between, [2 * middles[-1] - between[-1]]])


def _texts(trace: Any, panel: Panel, x: np.ndarray, y: np.ndarray, z: np.ndarray, shade: Any) -> None:
    for row, texts in enumerate(trace.text):
        for column, text in enumerate(texts):
            if text and not np.isnan(z[row, column]):
                ink = trace.textfont.color or readable_on(shade(z[row, column]))
                size_pt = PT_PER_PX * (trace.textfont.size or 12)
                panel.axes.text(
                    x[column], y[row], plain(str(text)), ha="center", va="center", color=ink, fontsize=size_pt
                )
