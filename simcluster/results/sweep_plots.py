"""Plotly figures of sweeps: `sweep.plot.against("algorithm.staleness")`, `grid(...)`, `convergence()`.

This file knows tables, runs and plotly. It must not know how a sweep was run, nor HTML.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from simcluster.errors import Problem, UsageError, nearest
from simcluster.results.figure_style import LINES, rgba, styled
from simcluster.results.summary import ACCURACY, LOSS
from simcluster.results.swept_scale import swept_scale
from simcluster.results.x_axis import XAxis, XScale

if TYPE_CHECKING:
    from simcluster.results.folder import Run

MEASURES = {
    "elapsed_s": "time of the run (s)",
    "time_to_target_s": "time to the target (s)",
    "loss": "loss",
    "accuracy": "accuracy",
    "bytes_sent": "bytes sent",
    "joules": "energy (J)",
    "price_usd": "price (USD)",
    "staleness_mean": "mean staleness",
}
"""Columns of the table that can be drawn, and what an axis calls them."""

MAX_LINES = 10
CURVE_POINTS = 200


class SweepPlots:
    """The figures of one sweep: its *table*, the *keys* that were swept, and for each row its run or None."""

    def __init__(self, table: pd.DataFrame, keys: Sequence[str], runs: Sequence[Run | None]) -> None:
        self._table, self._keys, self._runs = table, list(keys), list(runs)

    @property
    def measures(self) -> list[str]:
        """What there is to draw: measures of which some point has a value."""
        return [name for name in MEASURES if name in self._table and self._table[name].notna().any()]

    def against(self, x: str | None = None, y: str = "elapsed_s") -> go.Figure:
        """*y* against the swept key *x* (the first, if none is named): a line for each combination of the other keys.

        Means over seeds; the band is from the least to the greatest. A point that failed is left out. Raises UsageError
        for a key that was not swept, or a measure that nothing has.
        """
        key = self._key(x)
        self._check_measure(y)
        good = self._table[self._table[y].notna()]
        scale = swept_scale(key, list(dict.fromkeys(good[key])))
        place = dict(zip(dict.fromkeys(good[key]), scale.places, strict=True))
        figure = go.Figure()
        for index, (label, rows) in enumerate(self._groups(good, [other for other in self._keys if other != key])):
            of_key = rows.groupby(key, sort=False)[y].agg(["mean", "min", "max"])
            places = [place[value] for value in of_key.index]
            _band(figure, places, of_key["min"], of_key["max"], index)
            figure.add_trace(_line(places, of_key["mean"], label, index))
        return styled(figure, height=380, xaxis=scale.axis, yaxis=_measure_axis(y), showlegend=len(self._keys) > 1)

    def grid(self, x: str, y: str, value: str = "elapsed_s") -> go.Figure:
        """*value* by the two swept keys *x* and *y*, as colours; the mean over all else. Raises as `against` does."""
        self._check_measure(value)
        across, up = self._key(x), self._key(y)
        means = self._table.groupby([up, across], sort=False)[value].mean().unstack()
        columns, rows = list(dict.fromkeys(self._table[across])), list(dict.fromkeys(self._table[up]))
        means = means.reindex(index=rows, columns=columns)
        cells = means.to_numpy(dtype=float)
        figure = go.Figure(
            go.Heatmap(
                x=[escape(str(column)) for column in columns],
                y=[escape(str(row)) for row in rows],
                z=cells,
                text=[[f"{cell:.3g}" if np.isfinite(cell) else "" for cell in row] for row in cells],
                texttemplate="%{text}",
                colorscale="Viridis" if value == "accuracy" else "Viridis_r",
                colorbar={"title": {"text": MEASURES[value]}},
                hovertemplate=f"{escape(across)} %{{x}}, {escape(up)} %{{y}}: %{{z:.4g}}<extra></extra>",
            )
        )
        sides = {
            "xaxis": {"title": {"text": across}, "type": "category"},
            "yaxis": {"title": {"text": up}, "type": "category"},
        }
        return styled(figure, height=160 + 44 * len(rows), margin={"t": 16}, **sides)

    def convergence(self, x: XAxis = "time", panel: Literal["loss", "accuracy"] = "loss") -> go.Figure:
        """Evaluated loss or accuracy against time, step or bytes: a line for each combination, a band over its seeds.

        The mean over seeds at equal places; drawn as far as all of them go. Raises UsageError if nothing was evaluated.
        """
        groups = self._groups(self._table, self._keys)
        of_group = {label: [run for point in rows.index if (run := self._runs[point])] for label, rows in groups}
        scale = XScale([run for runs in of_group.values() for run in runs], x)
        figure = go.Figure()
        for index, (label, runs) in enumerate(of_group.items()):
            curves = [curve for run in runs if (curve := _curve(run, scale, panel)) is not None]
            if not curves:
                continue
            places = np.linspace(max(c[0][0] for c in curves), min(c[0][-1] for c in curves), CURVE_POINTS)
            values = np.array([np.interp(places, *curve) for curve in curves])
            if len(curves) > 1:
                _band(figure, places, values.min(axis=0), values.max(axis=0), index)
            figure.add_trace(_line(places, values.mean(axis=0), label, index, markers=False))
        if not figure.data:
            raise UsageError(Problem("metrics", "no evaluation", f"runs that were evaluated: {panel} of rank 0"))
        percent = {"tickformat": ".0%"} if panel == "accuracy" else {}
        lines = len({trace.name for trace in figure.data if trace.name})
        below = {"orientation": "v", "yanchor": "top", "y": -0.22}  # many long names leave no room above
        return styled(
            figure,
            height=340 + 20 * lines,
            margin={"t": 16, "b": 60 + 20 * lines},
            legend=below,
            xaxis={"title": {"text": scale.title}},
            yaxis={"title": {"text": panel}, **percent},
        )

    def _key(self, key: str | None) -> str:
        if key is None and self._keys:
            return self._keys[0]
        if key not in self._keys:
            raise UsageError(Problem("x", repr(key), f"a swept key: {nearest(str(key), self._keys)}"))
        return key

    def _check_measure(self, name: str) -> None:
        if name not in self.measures:
            raise UsageError(Problem("y", repr(name), f"a measure of this sweep: {nearest(name, self.measures)}"))

    def _groups(self, table: pd.DataFrame, keys: list[str]) -> list[tuple[str, pd.DataFrame]]:
        """(its values in words, its rows) of each combination of *keys*, the first few."""
        if not keys:
            return [("all", table)]
        found = []
        for values, rows in table.groupby(keys, sort=False):
            words = [f"{key.rsplit('.', 1)[-1]} {value}" for key, value in zip(keys, values, strict=True)]
            found.append((escape(", ".join(words)), rows))
        return found[:MAX_LINES]


def _curve(run: Run, scale: XScale, panel: str) -> tuple[np.ndarray, np.ndarray] | None:
    metrics = run.metrics
    rows = metrics[metrics["name"] == (ACCURACY if panel == "accuracy" else LOSS)]
    if len(rows) < 2:
        return None
    return np.asarray(scale.of(run, rows), dtype=float), rows["value"].to_numpy()


def _line(places: Any, values: Any, label: str, index: int, *, markers: bool = True) -> go.Scatter:
    return go.Scatter(
        x=places,
        y=values,
        name=label,
        legendgroup=label,
        mode="lines+markers" if markers else "lines",
        line={"width": 2.5, "color": LINES[index % len(LINES)]},
        marker={"size": 7},
        hovertemplate="%{x}: %{y:.4g}",
    )


def _band(figure: go.Figure, places: Any, low: Any, high: Any, index: int) -> None:
    """From the least to the greatest of the seeds; nothing where there is one."""
    low, high = np.asarray(low, dtype=float), np.asarray(high, dtype=float)
    if np.array_equal(low, high):
        return
    figure.add_trace(
        go.Scatter(
            x=[*places, *reversed(list(places))],
            y=[*high, *reversed(low)],
            fill="toself",
            fillcolor=rgba(LINES[index % len(LINES)], 0.18),
            line={"width": 0},
            hoverinfo="skip",
            showlegend=False,
        )
    )


def _measure_axis(name: str) -> dict[str, Any]:
    return {
        "title": {"text": MEASURES[name]},
        **({"tickformat": ".0%"} if name == "accuracy" else {"rangemode": "tozero"}),
    }
