"""Turn a sweep's table into lines of a measure against a swept key.

There is a line for each combination of the other keys.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from html import escape
from itertools import combinations, pairwise
from typing import Any, Final, TypeVar

import numpy as np
import pandas as pd

from simcluster import units
from simcluster.lab.reports.figure_style import MAX_LINES
from simcluster.lab.reports.scales import is_wide
from simcluster.runs.sweep import swept_columns

MAX_TICKS = 8
"""Limit on the values of an axis that has a tick at each value; longer axes have the usual ticks.
"""


@dataclass(frozen=True)
class SweptScale:
    """The axis of a swept key: *places* are the positions of its values, in *unit*.

    A place is a number, or a string if *is_category*.
    """

    title: str
    places: list[Any]
    is_category: bool
    is_logarithmic: bool
    unit: str = ""

    def say(self, place: Any) -> str:
        """Return *place*, which may lie between two values, as text such as '137 Mbps'."""
        return str(place) if self.is_category else f"{float(f'{place:.3g}'):g} {self.unit}".rstrip()

    @property
    def axis(self) -> dict[str, Any]:
        """The axis as part of a plotly layout."""
        kind = "log" if self.is_logarithmic else "linear"
        if self.is_category:
            kind = "category"
        ticks = {} if self.is_category or len(self.places) > MAX_TICKS else {"tickvals": self.places}
        return {"title": {"text": self.title}, "type": kind, **ticks}


_UNITS: tuple[tuple[Callable[[object], float], float, str], ...] = (
    (units.parse_bandwidth, 1e6 / 8, "Mbps"),
    (units.parse_latency, 1e-3, "ms"),
    (units.parse_size, 1e6, "MB"),
    (units.parse_rate, 1e9, "GFLOP/s"),
    (units.parse_power, 1.0, "W"),
    (units.parse_price, 1.0, "USD/h"),
)


def swept_scale(key: str, values: Sequence[Any]) -> SweptScale:
    """Return the scale of the *values* of the setting *key*, in their order."""
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        numbers = [float(value) for value in values]
        return SweptScale(key, numbers, False, is_wide(numbers))
    for parse, scale, unit in _UNITS:
        with suppress(units.UnitError):
            numbers = [parse(value) / scale for value in values]
            return SweptScale(f"{key} ({unit})", numbers, False, is_wide(numbers), unit)
    return SweptScale(key, [str(value) for value in values], True, False)


TARGET: Final = "time_to_target_s"

Drawn = TypeVar("Drawn")
PLAIN_KEYS = ("algorithm", "topology", "workload", "name")
"""Last parts of those keys whose values are clear without the key."""


@dataclass(frozen=True)
class SweptLine:
    """A line: the mean, minimum and maximum over seeds at each place, NaN if unknown.

    *label* is HTML.
    """

    label: str
    means: list[float]
    lows: list[float]
    highs: list[float]


def combination(keys: Sequence[str], values: Sequence[Any]) -> str:
    """Return the *values* of *keys* as text such as 'pull_interval 4, edp'."""
    lasts = [key.rsplit(".", 1)[-1] for key in keys]
    pairs = zip(lasts, map(said, values), strict=True)
    return ", ".join(value if last in PLAIN_KEYS else f"{last} {value}" for last, value in pairs)


def short(key: str) -> str:
    """Return the last two parts of *key*: the key of a link or node keeps its name."""
    return ".".join(key.split(".")[-2:])


def said(value: Any) -> str:
    """Return a swept value as text. In tables of older versions, blocks are JSON."""
    if not isinstance(value, str) or not value.startswith("{"):
        return str(value)
    try:
        return swept_columns.label(json.loads(value))
    except ValueError:
        return value


def others_than(table: pd.DataFrame, keys: Sequence[str], x: str) -> list[str]:
    """Return the *keys* that vary independently of *x*."""
    return [key for key in keys if key != x and table.groupby(x, sort=False)[key].nunique().max() > 1]


def groups(table: pd.DataFrame, keys: Sequence[str]) -> list[tuple[str, pd.DataFrame]]:
    """Return (values as HTML text, rows with these values) for each combination of *keys*."""
    if not keys:
        return [("all", table)]
    return [(escape(combination(keys, values)), rows) for values, rows in table.groupby(list(keys), sort=False)]


def first_of(all_lines: Sequence[Drawn]) -> tuple[list[Drawn], list[str]]:
    """Return (the first MAX_LINES lines, sentences about the rest)."""
    if len(all_lines) <= MAX_LINES:
        return list(all_lines), []
    return list(all_lines[:MAX_LINES]), [f"The first {MAX_LINES} of {len(all_lines)} combinations."]


def soonest_of(lines: Sequence[SweptLine]) -> tuple[list[SweptLine], list[str]]:
    """Return (at most MAX_LINES lines, sentences about the rest).

    A line that is lowest at some place, or half-way between two places, takes precedence.
    """
    if len(lines) <= MAX_LINES:
        return list(lines), []
    heights = np.array([line.means for line in lines])
    heights = np.concatenate([heights, np.sqrt(heights[:, 1:] * heights[:, :-1])], axis=1)
    heights[np.isnan(heights)] = np.inf
    lowest = set(heights.argmin(axis=0)[np.isfinite(heights).any(axis=0)].tolist())
    order = sorted(range(len(lines)), key=lambda number: (number not in lowest, number))[:MAX_LINES]
    words = f"{MAX_LINES} of {len(lines)} combinations: those that are soonest anywhere, then the first."
    return [lines[number] for number in sorted(order)], [words]


def scale_of(table: pd.DataFrame, key: str) -> tuple[SweptScale, dict[Any, Any]]:
    """Return (the scale of *key*, value -> its place); numbers are in rising order."""
    values = list(dict.fromkeys(table[key]))
    scale = swept_scale(key, values)
    if scale.is_category:
        names = [said(value) for value in values]
        scale = replace(scale, places=names if len(set(names)) == len(names) else scale.places)
    else:
        values = [values[i] for i in np.argsort(scale.places, kind="stable")]
        scale = swept_scale(key, values)
    return scale, dict(zip(values, scale.places, strict=True))


def swept_lines(
    table: pd.DataFrame, keys: Sequence[str], x: str, measure: str, *, every_seed: bool = False
) -> tuple[SweptScale, list[SweptLine]]:
    """Return (the scale of *x*, the lines of *measure* against *x*).

    With *every_seed*, a line has a number at a place only if every seed has one there: the mean of
    only some seeds would mislead.
    """
    scale, place = scale_of(table if every_seed else table[table[measure].notna()], x)
    found = []
    for label, rows in groups(table, others_than(table, keys, x)):
        spreads = {}
        for value, part in rows.groupby(x, sort=False)[measure]:
            if value in place and not (every_seed and part.hasnans):
                spreads[place[value]] = (float(part.mean()), float(part.min()), float(part.max()))
        columns = [spreads.get(at, (np.nan,) * 3) for at in scale.places]
        found.append(SweptLine(label, *(list(numbers) for numbers in zip(*columns, strict=True))))
    return scale, found


@dataclass(frozen=True)
class Crossing:
    """A crossing of two lines: *before* is lower to its left, *after* is lower to its right.

    *is_lowest* says whether no other line is lower there: then the lowest line changes.
    """

    place: float
    height: float
    before: str
    after: str
    is_lowest: bool


def crossings(
    places: Sequence[float], lines: Mapping[str, Sequence[float]], x_is_log: bool, y_is_log: bool
) -> list[Crossing]:
    """Return all crossings of *lines* (label -> heights at *places*) from left to right.

    *places* are in rising order; a height of NaN is a gap. Lines that touch without changing sides
    do not cross.
    """
    x = [math.log(place) for place in places] if x_is_log else places
    heights = {label: [math.log(y) for y in own] if y_is_log else own for label, own in lines.items()}
    found = []
    for a, b in combinations(heights, 2):
        for at, height, a_is_before in _of_two(x, heights[a], heights[b]):
            lower = [label for label, own in heights.items() if label not in (a, b) and _height_at(at, x, own) < height]
            before, after = (a, b) if a_is_before else (b, a)
            place, tall = math.exp(at) if x_is_log else at, math.exp(height) if y_is_log else height
            found.append(Crossing(place, tall, before, after, not lower))
    return sorted(found, key=lambda crossing: crossing.place)


def _of_two(x: Sequence[float], a: Sequence[float], b: Sequence[float]) -> Iterator[tuple[float, float, bool]]:
    """Yield (place, height, whether *a* is lower to its left) for each crossing of *a* and *b*."""
    last: tuple[int, float] | None = None  # (last index at which the lines differ, a minus b there)
    for i, (mine, other) in enumerate(zip(a, b, strict=True)):
        apart = mine - other
        if math.isnan(apart):
            last = None
        elif apart != 0.0:
            if last is not None and (apart > 0) != (last[1] > 0):
                before, was = last
                if before == i - 1:
                    share = was / (was - apart)
                    yield x[before] + share * (x[i] - x[before]), a[before] + share * (mine - a[before]), was < 0
                else:  # The lines coincided in between: the crossing is where that began.
                    yield x[before + 1], a[before + 1], was < 0
            last = (i, apart)


def _height_at(at: float, x: Sequence[float], heights: Sequence[float]) -> float:
    for (x0, y0), (x1, y1) in pairwise(zip(x, heights, strict=True)):
        if x0 <= at <= x1 and not math.isnan(y0 + y1):
            return y0 + (y1 - y0) * (at - x0) / (x1 - x0)
    return math.nan
