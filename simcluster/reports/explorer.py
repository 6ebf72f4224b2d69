"""The explorer.html of a sweep: a page for choosing axes, filtering points and opening a run.

Names and values of the sweep are passed as JSON only; the scripts insert them into the page as text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import msgspec
import pandas as pd

from simcluster.reports.figure_style import is_wide
from simcluster.reports.html_page import page_of
from simcluster.reports.sweep_plots import MEASURES
from simcluster.reports.swept_lines import swept_scale
from simcluster.runs.flat_config import flat

SCRIPTS = ("inflate.js", "explorer_data.js", "explorer_plot.js", "explorer_point.js", "explorer.js")
STYLES = ("report.css", "explorer.css")
MAX_OWN = 64
"""Limit on the differing settings in the page; config.yaml of a point has all."""
MAX_COMMON = 2000
"""Limit on the settings that all points share."""
IN_TABLE = ("status", *MEASURES, "error")
"""Columns of the page's table besides the point, its seed and the swept keys."""


def render(
    name: str,
    table: pd.DataFrame,
    keys: Sequence[str],
    reports: Sequence[bool],
    configs: Sequence[Mapping[str, Any] | None],
) -> str:
    """Return the page of the sweep called *name*.

    For each row of *table*, *reports* says whether its run has a report, and *configs* has its resolved experiment or
    None.
    """
    columns = [found for column in table.columns if (found := _column(column, table[column], keys)) is not None]
    names = [column["name"] for column in columns]
    measures = [measure for measure in MEASURES if measure in names]
    data = {
        "name": name,
        "columns": columns,
        "keys": list(keys),
        "shown": [column for column in dict.fromkeys(("point", "seed", *keys, *IN_TABLE)) if column in names],
        # The last key across shows most, with the others as colours.
        "start": {
            "x": keys[-1] if keys else "seed",
            "y": measures[0] if measures else "point",
            "colour": keys[0] if len(keys) > 1 else "",
        },
        "reports": list(map(bool, reports)),
        **_configs(configs),
    }
    found = {"data": msgspec.json.encode(data).decode()}
    return page_of(f"{name}, explored", _body(name), SCRIPTS, STYLES, found, {}, has_plotly=True)


def _column(name: str, values: pd.Series, keys: Sequence[str]) -> dict[str, Any] | None:
    """Return a column for the scripts; None if it is empty.

    Numbers have `values`, and also `labels` if they were written with a unit; words have labels only. An empty cell is
    null.
    """
    if not values.notna().any():
        return None
    column = {"name": name, "title": MEASURES.get(name, name), "swept": name in keys, "log": False}
    cells = [None if pd.isna(value) else value.item() if hasattr(value, "item") else value for value in values]
    is_number = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
    if name not in keys and is_number:
        numbers = [cell if cell is None or math.isfinite(cell) else None for cell in cells]
        known = [cell for cell in numbers if cell is not None]
        return column | {"values": numbers, "log": name in MEASURES and name != "accuracy" and is_wide(known)}
    labels = {"labels": [None if cell is None else str(cell) for cell in cells]}
    if name not in keys:
        return column | labels
    distinct = [value for value in dict.fromkeys(cells) if value is not None]
    scale = swept_scale(name, distinct)
    if scale.is_category:
        return column | labels
    place = dict(zip(distinct, scale.places, strict=True))
    column |= {"title": scale.title, "log": scale.is_logarithmic, "values": [place.get(cell) for cell in cells]}
    return column if is_number else column | labels


def _configs(configs: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
    """Return the settings shared by all points with a configuration, as lines, and the differing ones by key."""
    flats = [None if config is None else flat(config) for config in configs]
    known = [found for found in flats if found is not None]
    keys = list(dict.fromkeys(key for found in known for key in found))
    absent = object()
    first = known[0] if known else {}
    differing = [key for key in keys if any(found.get(key, absent) != first.get(key, absent) for found in known)]
    common = [f"{key}: {_said(first[key])}" for key in keys if key not in set(differing)]
    if len(common) > MAX_COMMON:
        common = [*common[:MAX_COMMON], f"and {len(common) - MAX_COMMON} more, in config.yaml"]
    own = {
        key: [None if found is None or key not in found else _said(found[key]) for found in flats]
        for key in differing[:MAX_OWN]
    }
    return {"common": common, "own": own, "more": len(differing) - len(own), "known": [f is not None for f in flats]}


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
<div class="figure" id="figure"></div>
</section>
<section id="detail" aria-label="point" tabindex="-1" hidden></section>
<section><h2>Points</h2><p class="note">A number opens its point; a heading sorts.</p>
<div class="wide"><table><thead><tr id="heads"></tr></thead><tbody id="rows"></tbody></table></div>
<button type="button" id="more" class="plain" hidden></button></section>
<section id="failures" hidden><h2>Failed</h2><p class="note" id="failed"></p><ul id="errors"></ul></section>"""
