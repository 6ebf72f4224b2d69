"""Plotly figures of sweeps.

Examples: `sweep.plot.against("algorithm.staleness")`, `grid(...)`, `convergence()`.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape, unescape
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from simcluster.errors import UsageError
from simcluster.lab.reports.figure_style import Figures, log_axis, measure_axis, named, styled, titled
from simcluster.lab.reports.scales import XAxis, axes_of, is_wide
from simcluster.lab.reports.sweeps.figures import (
    draw_band,
    draw_lines,
    meetings,
    soonest_lines,
    swept_line,
    time_to_target,
)
from simcluster.lab.reports.sweeps.lines import TARGET, Crossing, first_of, groups, scale_of, short, swept_lines
from simcluster.lab.reports.sweeps.speedup import By, counts_nodes, draw_efficiency, draw_speedup, speed_ups
from simcluster.lab.reports.sweeps.winner import draw_winners
from simcluster.lab.reports.x_axis import XScale
from simcluster.runs import words
from simcluster.runs.folder import RunFolder
from simcluster.runs.summary import ACCURACY, LOSS
from simcluster.runs.sweep.swept_columns import key_of
from simcluster.spelling import nearest

MEASURES = {
    "time_to_target_s": "time to the target (s)",
    "elapsed_s": "time of the run (s)",
    "loss": "loss",
    "accuracy": "accuracy",
    "bytes_sent": "bytes sent",
    "joules": "energy (J)",
    "price_usd": "price (USD)",
    "staleness_mean": "mean staleness",
}
"""Column of the table that a figure can show -> title of its axis."""

CURVE_POINTS = 200
"""Number of places at which the curves of several runs are sampled to compute their mean."""


class SweepPlots(Figures):
    """The figures of a sweep: its *table*, swept *keys*, and the run (or None) of each row."""

    def __init__(self, table: pd.DataFrame, keys: Sequence[str], runs: Sequence[RunFolder | None]) -> None:
        self._table = table
        self._keys = list(keys)
        self._runs = list(runs)
        self._scales: dict[tuple[XAxis, str | None], XScale] = {}

    @property
    def measures(self) -> list[str]:
        """The measures that at least one point has."""
        return [name for name in MEASURES if name in self._table and self._table[name].notna().any()]

    @property
    def axes(self) -> list[XAxis]:
        """The x axes for `convergence`."""
        return axes_of([run for run in self._runs if run is not None])

    def counts_nodes(self, key: str) -> bool:
        """Return whether *key* determines the number of nodes, and the number varies."""
        return counts_nodes(self._table, self._runs, self._key(key))

    @property
    def contest(self) -> tuple[str, str, str] | None:
        """The arguments (x, y, of) for `winner`.

        None unless a swept key has strings as values and there are two other swept keys.
        """
        names = [key for key in self._keys if scale_of(self._table, key)[0].is_category]
        others = [key for key in self._keys if key not in names[:1]]
        return (others[0], others[1], names[0]) if names and len(others) >= 2 else None

    def against(self, x: str | None = None, y: str = "elapsed_s") -> go.Figure:
        """*y* against the swept key *x*, with a line for each combination of the other keys.

        If *x* is None, the first swept key is used. Lines are means over seeds; each band is from
        the minimum to the maximum. Failed points are left out. Raise UsageError for a key that was
        not swept, or a measure without values.
        """
        key = self._key(x)
        self._check_measure(y)
        scale, lines = swept_lines(self._table, self._keys, key, y)
        lines, cut = first_of([line for line in lines if not np.isnan(line.means).all()])
        figure = draw_lines(scale.places, lines, "%{x}: %{y:.4g}")
        title, more_px = titled(scale.title, cut)
        heights = [n for line in lines for n in (*line.means, *line.lows, *line.highs) if not np.isnan(n)]
        percent = {"title": {"text": MEASURES[y]}, "tickformat": ".0%"}
        return styled(
            figure,
            **named(figure, 280, more_px),
            xaxis={**scale.axis, "title": {"text": title}},
            yaxis=percent if y == "accuracy" else measure_axis(MEASURES[y], heights),
            showlegend=len(lines) > 1,
        )

    def time_to_target(self, x: str | None = None) -> go.Figure:
        """Time to the target against the swept key *x*, a line per combination of the other keys.

        A line has a number at a place only if every seed reached the target. Crossings of lines are
        marked, interpolated on the axes as drawn, and stated in words if the fastest line changes.
        Raise UsageError for a sweep that has no target or never reached it.
        """
        self._check_measure(TARGET)
        return time_to_target(self._table, self._keys, self._key(x))

    def crossings(self, x: str | None = None) -> list[Crossing]:
        """Return the crossings of the lines of `time_to_target`, from left to right.

        Each crossing has its place (in the axis's unit), its height (in s), and the faster line
        before and after it.
        """
        self._check_measure(TARGET)
        return meetings(*soonest_lines(self._table, self._keys, self._key(x))[:2])

    def speedup(self, x: str | None = None, by: By | None = None) -> go.Figure:
        """Speed-up over the smallest value of *x* (or over the first word), seed by seed.

        *by* is `time_to_target_s` or `elapsed_s`, which compares work per second. If None, it is
        `time_to_target_s` if the sweep reached a target. The dashed line is proportional to the
        number of nodes, or to the value of *x* if the number of nodes is constant.
        """
        return draw_speedup(speed_ups(self._table, self._keys, self._runs, self._key(x), self._by(by)))

    def efficiency(self, x: str | None = None, by: By | None = None) -> go.Figure:
        """The speed-up divided by the proportional speed-up.

        Raise UsageError for a key without a proportional speed-up.
        """
        key = self._key(x)
        return draw_efficiency(speed_ups(self._table, self._keys, self._runs, key, self._by(by)), key)

    def winner(self, x: str, y: str, of: str, by: str = "") -> go.Figure:
        """The best value of the key *of* at each *x* and *y*, and its factor over the second best.

        *by* is a measure; if empty, it is the time to the target if there is one, else the time of
        the run. Each value of *of* is represented by the best combination of the other swept
        settings for which every seed has the measure. Raise UsageError as `against` does.
        """
        measure = by or self._by(None)
        self._check_measure(measure)
        keys = [self._key(key) for key in (x, y, of)]
        if len(set(keys)) < len(keys):
            raise UsageError("x, y, of", words.listing(keys), "three different swept keys")
        return draw_winners(self._table, self._keys, x, y, of, measure)

    def grid(self, x: str, y: str, value: str = "elapsed_s") -> go.Figure:
        """*value* as colours over the two swept keys *x* and *y*.

        The value of a cell is the mean over seeds and all other keys. Raise UsageError as `against`
        does.
        """
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
                showscale=bool(np.nanmin(cells) < np.nanmax(cells)),
                colorbar={"title": {"text": MEASURES[value], "side": "right"}, "thickness": 12},
                hovertemplate=f"{escape(across)} %{{x}}, {escape(up)} %{{y}}: %{{z:.4g}}<extra></extra>",
            )
        )
        sides = {
            "xaxis": {"title": {"text": escape(across)}, "type": "category"},
            "yaxis": {"title": {"text": escape(short(up))}, "type": "category"},
        }
        return styled(figure, height=160 + 44 * len(rows), margin={"t": 16}, **sides)

    def convergence(
        self, x: XAxis = "time", panel: Literal["loss", "accuracy"] = "loss", by: str | None = None
    ) -> go.Figure:
        """Evaluated loss or accuracy against time, step, bytes or energy.

        There is a line for each combination of the keys, or for each value of the key *by*, with a
        band over its runs. A line is the mean of its runs at equal places, over the range that all
        of them cover. Raise UsageError if nothing was evaluated.
        """
        parts, cut = first_of(groups(self._table, self._keys if by is None else [self._key(by)]))
        of_group = {label: [run for point in rows.index if (run := self._runs[point])] for label, rows in parts}
        if (scale := self._scales.get((x, by))) is None:  # Cached: it reads all runs' spans.
            scale = self._scales[x, by] = XScale([run for runs in of_group.values() for run in runs], x)
        metric = ACCURACY if panel == "accuracy" else LOSS
        all_curves = {label: _curves(runs, scale, metric) for label, runs in of_group.items()}
        ends = {
            label: (max(c[0][0] for c in own), min(c[0][-1] for c in own)) for label, own in all_curves.items() if own
        }
        reach = [(start, end) for start, end in ends.values() if start < end]
        x_is_log = all(start > 0 for start, _ in reach) and is_wide([end for _, end in reach])
        figure = go.Figure()
        apart = list[str]()
        heights = list[float]()
        for index, (label, curves) in enumerate(all_curves.items()):
            if not curves:
                continue
            start, end = ends[label]
            if start >= end:
                apart.append(f"Runs of {unescape(label)} have no stretch in common.")
                continue
            places = _short((np.geomspace if x_is_log else np.linspace)(start, end, CURVE_POINTS))
            values = _short(np.array([np.interp(places, *curve) for curve in curves]))
            if len(curves) > 1:
                draw_band(figure, places, values.min(axis=0), values.max(axis=0), label, index)
            heights += [float(values.min()), float(values.max())]
            line = swept_line(places, _short(values.mean(axis=0)), label, index, "%{x}: %{y:.4g}")
            figure.add_trace(line.update(mode="lines"))
        if not figure.data:
            found = " ".join(apart) or "no evaluation"
            raise UsageError("metrics", found, f"runs that were evaluated: {panel} of rank 0")
        form: dict[str, Any] = {"tickformat": ".0%"} if panel == "accuracy" else {}
        if panel == "loss" and is_wide(heights):
            form = log_axis(heights)
        title, more_px = titled(scale.title, [*apart, *cut])
        return styled(
            figure,
            **named(figure, 300, more_px),
            xaxis={"title": {"text": title}, **(log_axis([n for both in reach for n in both]) if x_is_log else {})},
            yaxis={"title": {"text": panel}, **form},
        )

    def _key(self, key: str | None) -> str:
        if key is None and self._keys:
            return self._keys[0]
        key = key_of(str(key), self._keys)
        if key not in self._keys:
            raise UsageError("x", repr(key), f"a swept key: {nearest(str(key), self._keys)}")
        return key

    def _check_measure(self, name: str) -> None:
        if name == TARGET and name not in self.measures:
            found = "not reached by any point" if name in self._table else "no target"
            raise UsageError("target", found, "a sweep with a target that is reached: --target accuracy=0.9")
        if name not in self.measures:
            raise UsageError("y", repr(name), f"a measure of this sweep: {nearest(name, self.measures)}")

    def _by(self, by: By | None) -> By:
        """Return *by*, a measure of speed.

        If None, it is the time to the target if a point reached one, else the time of the run.
        """
        if by not in (None, *get_args(By)):
            raise UsageError("by", repr(by), " or ".join(get_args(By)))
        chosen: By = by or (TARGET if TARGET in self.measures else "elapsed_s")
        self._check_measure(chosen)
        return chosen


def _curves(runs: Sequence[RunFolder], scale: XScale, metric: str) -> list[tuple[Any, Any]]:
    """Return (places, values of *metric*) for each run that has more than one value."""
    tables = [(run, run.rows.named(metric)) for run in runs]
    return [(np.asarray(scale.of(run, rows), dtype=float), rows["value"]) for run, rows in tables if len(rows) > 1]


def _short(values: Any) -> Any:
    """Return *values* rounded to six digits: a page of curves then takes a third of the bytes."""
    return np.array([float(f"{value:.6g}") for value in np.ravel(values)]).reshape(np.shape(values))
