"""A sweep's table as lines: a measure against one swept key, a line for each combination of the others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from simcluster.reports.swept_scale import SweptScale, swept_scale

MAX_LINES = 10
"""So many are drawn in colours of their own."""

Line = TypeVar("Line")
PLAIN_KEYS = ("algorithm", "topology", "workload", "name")
"""Keys, by their last part, whose values say by themselves what they are."""


@dataclass(frozen=True)
class SweptLine:
    """*label* (HTML); at each of the scale's places the mean over seeds, the least and the greatest, NaN for none."""

    label: str
    means: list[float]
    lows: list[float]
    highs: list[float]


def combination(keys: Sequence[str], values: Sequence[Any]) -> str:
    """'pull_interval 4, edp': the *values* of *keys* in words."""
    found = []
    for key, value in zip(keys, values, strict=True):
        last = key.rsplit(".", 1)[-1]
        found.append(said(value) if last in PLAIN_KEYS else f"{last} {said(value)}")
    return ", ".join(found)


def short(key: str) -> str:
    """A key by the last two of its parts: that of a link or node with its name."""
    return ".".join(key.split(".")[-2:])


def said(value: Any) -> str:
    """A swept value in words: a block by its name and its other settings, a whole topology by its name."""
    if not isinstance(value, str) or not value.startswith("{"):
        return str(value)
    try:
        block = json.loads(value)
    except ValueError:
        return value
    name = block.pop("name", None) or str(block.pop("path", "")).rsplit("/", 1)[-1]
    if name and block.keys() >= {"nodes", "links"}:
        return str(name)
    rest = ", ".join(f"{key} {inner}" for key, inner in block.items())
    return f"{name} ({rest})" if rest and name else name or rest


def others_than(table: pd.DataFrame, keys: Sequence[str], x: str) -> list[str]:
    """The *keys* that change beside *x*, not with it."""
    return [key for key in keys if key != x and table.groupby(x, sort=False)[key].nunique().max() > 1]


def groups(table: pd.DataFrame, keys: Sequence[str]) -> list[tuple[str, pd.DataFrame]]:
    """(its values in words, as HTML, its rows) of each combination of *keys*."""
    if not keys:
        return [("all", table)]
    return [(escape(combination(keys, values)), rows) for values, rows in table.groupby(list(keys), sort=False)]


def first_of(all_lines: Sequence[Line]) -> tuple[list[Line], list[str]]:
    """(as many of them as can be told apart, what is to be said of that)."""
    if len(all_lines) <= MAX_LINES:
        return list(all_lines), []
    return list(all_lines[:MAX_LINES]), [f"The first {MAX_LINES} of {len(all_lines)} combinations."]


def soonest_of(lines: Sequence[SweptLine]) -> tuple[list[SweptLine], list[str]]:
    """The same, but first those that are lowest somewhere: at a place, or half-way to the next."""
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
    """(how *key* is drawn, the place of each of its values); numbers rise."""
    values = list(dict.fromkeys(table[key]))
    scale = swept_scale(key, values)
    if scale.is_category:
        names = [said(value) for value in values]
        scale = replace(scale, places=names if len(set(names)) == len(names) else scale.places)
    else:
        order = np.argsort(scale.places, kind="stable")
        scale = swept_scale(key, [values[i] for i in order])
        values = [values[i] for i in order]
    return scale, dict(zip(values, scale.places, strict=True))


def swept_lines(
    table: pd.DataFrame, keys: Sequence[str], x: str, measure: str, *, every_seed: bool = False
) -> tuple[SweptScale, list[SweptLine]]:
    """The lines of *measure* against *x*. With *every_seed* there is a number only where every seed has one: the mean
    of those that got somewhere says little if others did not.
    """
    scale, place = scale_of(table if every_seed else table[table[measure].notna()], x)
    found = []
    for label, rows in groups(table, others_than(table, keys, x)):
        numbers = {
            place[value]: _spread(part[measure], every_seed)
            for value, part in rows.groupby(x, sort=False)
            if value in place
        }
        columns = [numbers.get(at, (np.nan,) * 3) for at in scale.places]
        means, lows, highs = ([float(row[i]) for row in columns] for i in range(3))
        found.append(SweptLine(label, means, lows, highs))
    return scale, found


def _spread(values: pd.Series, every_seed: bool) -> tuple[float, float, float]:
    known = values.dropna()
    if known.empty or (every_seed and len(known) < len(values)):
        return np.nan, np.nan, np.nan
    return float(known.mean()), float(known.min()), float(known.max())
