"""One axis of a plotly figure: where its values stand, and how matplotlib's is set up like it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from simcluster.reports.static.words import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis


class PlainAxis:
    """The plotly axis *layout* of the *values* (of each trace on it); *is_x*, or y."""

    def __init__(self, layout: Any, values: Iterable[Sequence[Any]], *, is_x: bool) -> None:
        self.layout, self.is_x = layout, is_x
        known = [value for column in values for value in column if value is not None]
        words = any(isinstance(value, str) for value in known)
        self.is_category = layout.type == "category" or (layout.type in (None, "-") and words)
        self.is_log = layout.type == "log"
        listed = [*(layout.categoryarray if layout.categoryarray is not None else ()), *known]
        self.categories = list(dict.fromkeys(map(str, listed))) if self.is_category else []
        self._place = {name: float(place) for place, name in enumerate(self.categories)}

    def places(self, values: Sequence[Any]) -> np.ndarray:
        """Where *values* stand; NaN for none."""
        if self.is_category:
            return np.array([math.nan if value is None else self._place[str(value)] for value in values])
        return np.array([math.nan if value is None else float(value) for value in values])

    def place(self, value: Any) -> float:
        """Where an annotation's value stands: plotly has its logarithm on logarithmic axes."""
        if self.is_category:
            return self._place.get(str(value), float(value) if isinstance(value, (int, float)) else math.nan)
        return float(10**value) if self.is_log else float(value)

    def apply(self, axes: Axes) -> str:
        """Sets *axes* up; returns the small print below the title, if there is any."""
        from matplotlib import ticker

        axis: Axis = axes.xaxis if self.is_x else axes.yaxis
        title, _, small = plain(self.layout.title.text).partition("\n")
        axis.set_label_text(title)
        if self.is_log:
            (axes.set_xscale if self.is_x else axes.set_yscale)("log")
            axis.set_minor_formatter(ticker.NullFormatter())
            axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
            if self.layout.dtick == "D2":
                axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
        self._ticks(axis)
        if self.layout.showgrid is not False and self.layout.gridcolor != "rgba(0,0,0,0)":
            axis.grid(visible=True)
        if self.layout.visible is False:
            axis.set_visible(False)
            axes.spines["bottom" if self.is_x else "left"].set_visible(False)
        self._limits(axes)
        return small

    def _ticks(self, axis: Axis) -> None:
        from matplotlib import ticker

        if self.is_category:
            axis.set_ticks(range(len(self.categories)), [plain(name) for name in self.categories])
        elif self.layout.tickvals is not None:
            values = [float(value) for value in self.layout.tickvals]
            texts = self.layout.ticktext if self.layout.ticktext is not None else [f"{value:g}" for value in values]
            axis.set_ticks(values, [plain(str(text)) for text in texts])
            axis.set_minor_locator(ticker.NullLocator())
        elif self.layout.tickformat == ".0%":
            axis.set_major_formatter(ticker.PercentFormatter(1.0, 0))
        if self.layout.showticklabels is False:
            axis.set_tick_params(labelbottom=False, labelleft=False)

    def _limits(self, axes: Axes) -> None:
        low, high = axes.get_xlim() if self.is_x else axes.get_ylim()
        if self.is_category:
            low, high = -0.5, len(self.categories) - 0.5
        if self.layout.range is not None:
            low, high = (10 ** float(end) if self.is_log else float(end) for end in self.layout.range)
        elif self.layout.rangemode == "tozero" and not self.is_log:
            low, high = min(low, 0.0), max(high, 0.0)
            if low < 0.0 <= -low < 0.08 * (high - low):  # only a margin below zero
                low = 0.0
        if self.layout.minallowed is not None:
            low = max(low, float(self.layout.minallowed))
        if self.layout.maxallowed is not None:
            high = min(high, float(self.layout.maxallowed))
        if self.layout.autorange == "reversed":
            low, high = high, low
        (axes.set_xlim if self.is_x else axes.set_ylim)(low, high)
