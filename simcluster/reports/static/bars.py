"""Plotly's bars as matplotlib draws them: beside each other, on each other, or where their base says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from simcluster.reports.figure_style import LINES
from simcluster.reports.static.marks import PT_PER_PX, Panel
from simcluster.reports.static.words import colour, plain

GAP = 0.25
"""Between bars, as our template has it."""


class Bars:
    """All bar traces of one panel: how they lie depends on each other."""

    def __init__(self, traces: Sequence[Any], panel: Panel, mode: str | None) -> None:
        self._traces, self._panel = list(traces), panel
        self._mode = mode or "group"
        self._sums: dict[tuple[float, bool], float] = {}
        lies = bool(traces) and traces[0].orientation == "h"
        self._along, self._across = (panel.x, panel.y) if lies else (panel.y, panel.x)
        self._lies = lies
        places = [self._across.places(list(self._of(trace)[1])) for trace in traces]
        at = np.unique(np.concatenate(places)) if places else np.array([])
        self._room = (1 - GAP) * (float(np.diff(at).min()) if len(at) > 1 else 1.0)

    def draw(self, trace: Any, index: int) -> Any:
        """Draws one of them, number *index* of its figure; returns what a legend shows of it."""
        lengths, names = self._of(trace)
        long = self._along.places(list(lengths))
        at = self._across.places(list(names))
        place, width = self._side(trace, at)
        start = self._start(trace, at, long)
        inks = trace.marker.color if trace.marker.color is not None else LINES[index % len(LINES)]
        faces = [colour(one, trace.opacity) for one in (inks if np.ndim(inks) else [inks] * len(at))]
        axes = self._panel.axes
        drawn = (
            axes.barh(place, long, width, left=start, color=faces) if self._lies
            else axes.bar(place, long, width, bottom=start, color=faces)
        )  # fmt: skip
        self._whiskers(trace, place, start + long)
        self._texts(trace, place, start + long)
        return drawn

    def _of(self, trace: Any) -> tuple[Any, Any]:
        """(lengths, what each is of)."""
        first = trace.x if trace.x is not None else ()
        second = trace.y if trace.y is not None else ()
        return (first, second) if trace.orientation == "h" else (second, first)

    def _side(self, trace: Any, at: np.ndarray) -> tuple[np.ndarray, Any]:
        """(middles of the bars, their widths)."""
        if trace.width is not None:
            width = float(np.max(trace.width))
            return at + (float(trace.offset) if trace.offset is not None else -width / 2) + width / 2, width
        if self._mode != "group" or len(self._traces) < 2:
            return at, self._room
        width = self._room / len(self._traces)
        number = next(i for i, other in enumerate(self._traces) if other is trace)  # equal ones are not the same
        return at + (number - (len(self._traces) - 1) / 2) * width, width

    def _start(self, trace: Any, at: np.ndarray, long: np.ndarray) -> np.ndarray:
        if trace.base is not None:
            return np.array([float(base) for base in trace.base])
        start = np.zeros(len(at))
        if self._mode in ("stack", "relative"):
            for number, (place, length) in enumerate(zip(at, long, strict=True)):
                key = (float(place), bool(length < 0))
                start[number] = self._sums.get(key, 0.0)
                self._sums[key] = start[number] + (0.0 if np.isnan(length) else length)
        return start

    def _whiskers(self, trace: Any, place: np.ndarray, ends: np.ndarray) -> None:
        error = trace.error_x if self._lies else trace.error_y
        if error.array is None:
            return
        more = np.array(error.array, dtype=float)
        less = np.array(error.arrayminus, dtype=float) if error.arrayminus is not None else more
        x, y = (ends, place) if self._lies else (place, ends)
        span = {"xerr" if self._lies else "yerr": np.stack([less, more])}
        self._panel.axes.errorbar(x, y, fmt="none", ecolor="#4a525a", elinewidth=0.9, capsize=2, **span)

    def _texts(self, trace: Any, place: np.ndarray, ends: np.ndarray) -> None:
        if trace.text is None or trace.textposition == "none":
            return
        texts = trace.text if np.ndim(trace.text) else [trace.text] * len(place)
        for text, at, end in zip(texts, place, ends, strict=True):
            self._panel.axes.annotate(
                plain(str(text)), (end, at) if self._lies else (at, end), fontsize=PT_PER_PX * 11,
                xytext=(3, 0) if self._lies else (0, 2), textcoords="offset points",
                ha="left" if self._lies else "center", va="center" if self._lies else "bottom",
            )  # fmt: skip
