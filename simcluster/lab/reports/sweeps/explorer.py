"""Write the explorer.html of a sweep: a page to choose axes, filter points and open a run.

Names and values of the sweep are passed only as JSON; the scripts insert them into the page as
text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from simcluster.lab.reports.html_page import page_of
from simcluster.lab.reports.scales import is_wide
from simcluster.lab.reports.sweeps.lines import swept_scale
from simcluster.lab.reports.sweeps.plots import MEASURES
from simcluster.runs.flat_config import flat

SCRIPTS = (
    *("inflate.js", "chart.js", "explorer_data.js", "explorer_marks.js", "explorer_axis.js", "explorer_point.js"),
    *("explorer_plot.js", "explorer_lines.js", "explorer_importance.js", "explorer.js"),
)
STYLES = ("report.css", "explorer.css")
MAX_OWN = 64
"""Limit on the settings in the page that differ between points.

A point's config.yaml has all of its settings.
"""
MAX_COMMON = 2000
"""Limit on the settings in the page that have the same value at all points."""
IN_TABLE = ("status", *MEASURES, "error")
"""Columns of the page's table in addition to the point, its seed and the swept keys."""


def render(
    name: str,
    table: pd.DataFrame,
    keys: Sequence[str],
    reports: Sequence[bool],
    configs: Sequence[Mapping[str, Any] | None],
) -> str:
    """Return the page of the sweep called *name*.

    For each row of *table*, *reports* says whether its run has a report, and *configs* has its
    resolved experiment (None if unknown).
    """
    columns = [found for column in table.columns if (found := _column(column, table[column], keys)) is not None]
    names = [column.name for column in columns]
    measures = [measure for measure in MEASURES if measure in names]
    common, own, more = _configs(configs)
    head = {
        "name": name,
        "rows": len(table),
        "columns": [column.head() for column in columns],
        "keys": list(keys),
        "measures": measures,
        "shown": [column for column in dict.fromkeys(("point", "seed", *keys, *IN_TABLE)) if column in names],
        # At first, the x axis is the last key, which changes fastest, and the colour is the first.
        "start": {
            "x": keys[-1] if keys else "seed",
            "y": measures[0] if measures else "point",
            "colour": keys[0] if len(keys) > 1 else "",
        },
        "common": common,
        "own": [column.head() for column in own],
        "more": more,
    }
    arrays: list[npt.NDArray[Any]] = [column.values for column in columns if column.values is not None]
    arrays += [column.codes for column in (*columns, *own) if column.codes is not None]
    arrays += [np.array([config is not None for config in configs], dtype=np.uint8), np.array(reports, dtype=np.uint8)]
    packed = {"data": msgspec.json.encode(head), "columns": b"".join(array.tobytes() for array in arrays)}
    return page_of(f"{name}, explored", _body(name), SCRIPTS, STYLES, {}, packed, has_plotly=False)


@dataclass(frozen=True)
class ExplorerColumn:
    """A column for the scripts of the page, with numbers, strings, or both.

    *values* has a number for each cell, NaN if there is none. *words* are the distinct strings;
    *codes* has the position of each cell's string in *words*, counted from 1 (0 for no string).
    Numbers that were written with a unit have both.
    """

    name: str
    title: str
    swept: bool = False
    log: bool = False
    values: npt.NDArray[np.float64] | None = None
    words: list[str] | None = None
    codes: npt.NDArray[np.uint32] | None = None

    def head(self) -> dict[str, Any]:
        """Return the column without its arrays, as JSON-compatible values."""
        known = {"name": self.name, "title": self.title, "swept": self.swept, "log": self.log}
        return known | {"is_number": self.values is not None, "words": self.words}


def _coded(cells: Iterable[str | None]) -> dict[str, Any]:
    """Return the fields *words* and *codes* of a column with *cells*."""
    codes, words = pd.factorize(np.array(list(cells), dtype=object))
    return {"words": words.tolist(), "codes": (codes + 1).astype(np.uint32)}


def _column(name: str, values: pd.Series, keys: Sequence[str]) -> ExplorerColumn | None:
    """Return column *name* of the table, with *values*, for the scripts; None if it is empty."""
    if not values.notna().any():
        return None
    title = MEASURES.get(name, name)
    swept = name in keys
    # JSON needs Python's numbers, not numpy's.
    plain = [value.item() if hasattr(value, "item") else value for value in values]
    cells = [None if pd.isna(value) else value for value in plain]
    is_number = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
    if not swept and is_number:
        numbers = _numbers(cells)
        finite = numbers[~np.isnan(numbers)].tolist()
        is_log = name in MEASURES and name != "accuracy" and is_wide(finite)
        return ExplorerColumn(name, title, log=is_log, values=numbers)
    coded = _coded(None if cell is None else str(cell) for cell in cells)
    distinct = [value for value in dict.fromkeys(cells) if value is not None]
    scale = swept_scale(name, distinct) if swept else None
    if scale is None or scale.is_category:
        return ExplorerColumn(name, title, swept, **coded)
    place = dict(zip(distinct, scale.places, strict=True))
    numbers = _numbers([place.get(cell) for cell in cells])
    return ExplorerColumn(name, scale.title, swept, scale.is_logarithmic, numbers, **({} if is_number else coded))


def _numbers(cells: Iterable[float | None]) -> npt.NDArray[np.float64]:
    """Return *cells* as an array, with NaN for missing and infinite numbers."""
    return np.array([math.nan if cell is None or not math.isfinite(cell) else cell for cell in cells], dtype=np.float64)


def _configs(configs: Sequence[Mapping[str, Any] | None]) -> tuple[list[str], list[ExplorerColumn], int]:
    """Return (lines of the common settings, columns of the differing ones, number of omitted ones).

    Points without a configuration are ignored.
    """
    flats = [None if config is None else flat(config) for config in configs]
    known = [found for found in flats if found is not None]
    keys = list(dict.fromkeys(key for found in known for key in found))
    absent = object()
    first = known[0] if known else {}
    differing = [key for key in keys if any(found.get(key, absent) != first.get(key, absent) for found in known)]
    common = [f"{key}: {_said(first[key])}" for key in keys if key not in set(differing)]
    if len(common) > MAX_COMMON:
        common = [*common[:MAX_COMMON], f"and {len(common) - MAX_COMMON} more, in config.yaml"]
    own = [
        ExplorerColumn(
            key, key, **_coded(None if found is None or key not in found else _said(found[key]) for found in flats)
        )
        for key in differing[:MAX_OWN]
    ]
    return common, own, len(differing) - len(own)


def _said(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _body(name: str) -> str:
    axes = "".join(
        f'<div class="axis"><label for="{axis}">{word}</label> <select id="{axis}"></select>'
        f'<label class="check"><input type="checkbox" id="{axis}-log"> log</label></div>'
        for axis, word in (("x", "horizontal"), ("y", "vertical"), ("colour", "colour"))
    )
    return f"""<header>
<div class="title"><h1>{escape(name)}</h1><span class="pill">sweep</span><span id="count"></span>
<a href="report.html">its report</a></div>
<noscript><p>This page needs JavaScript; table.csv does not.</p></noscript>
</header>
<section aria-label="figure">
<div class="controls">{axes}
<div class="choice" id="seeds" role="group" aria-label="seeds">
<button type="button" data-value="mean">means over seeds</button>
<button type="button" data-value="each">each point</button></div></div>
<div id="filters"></div>
<div class="controls"><label>filter by <select id="add"></select></label>
<button type="button" id="clear" class="plain">remove all filters</button></div>
<p class="note" id="status" role="status"></p>
<div class="spans" id="figure"></div>
<p class="key" id="legend"></p>
<p class="note">Drag in the figure to keep the points in a rectangle; click a point to open it.</p>
</section>
<section id="detail" aria-label="point" tabindex="-1" hidden></section>
<section><h2>All settings together</h2>
<p class="note">Drag along an axis to keep what lies in a range of it, double-click to drop the range.
<span id="lines-status"></span></p>
<div class="spans" id="lines"></div></section>
<section><h2>What matters</h2><p class="note" id="method"></p>
<div class="wide"><table class="bars"><tbody id="importance"></tbody></table></div></section>
<section><h2>Points</h2><p class="note">A number opens its point; a heading sorts.</p>
<div class="wide"><table><thead><tr id="heads"></tr></thead><tbody id="rows"></tbody></table></div>
<button type="button" id="more" class="plain" hidden></button></section>
<section id="failures" hidden><h2>Failed</h2><p class="note" id="failed"></p><ul id="errors"></ul></section>"""
