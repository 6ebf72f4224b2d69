"""Write the timeline section of report.html: its controls, and the data that timeline.js reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from simcluster.lab.reports.html_page import choice, section
from simcluster.lab.reports.scales import time_scale
from simcluster.lab.reports.sections.activity import ActivitySpans
from simcluster.lab.reports.sections.span_columns import SpanColumns
from simcluster.lab.reports.sections.spread import MANY

ROWS = 16
"""Nodes per page of the timeline, for a run with more than MANY nodes."""

NOTE = (
    "One row per node: computing above, sending and waiting to receive below it. Drag to choose a window, double-click "
    "for the whole run; on the picture, arrows move and + and - zoom. trace.json next to this page has every span, for "
    "Perfetto."
)
PAGER = """<div class="pager" hidden>
<button type="button" class="plain earlier" aria-label="previous nodes">&lt;</button><span></span>
<button type="button" class="plain later" aria-label="next nodes">&gt;</button></div>"""
KEY = (("computing", "#2f7fb8"), ("sending", "#e0862b"), ("waiting to receive", "#9aa5b1"))


def timeline(
    activity: ActivitySpans, windows: Mapping[str, tuple[float, float]]
) -> tuple[str, dict[str, str], dict[str, bytes]]:
    """Return (the section's HTML, the JSON for its script, the bytes for its script).

    All three are empty if the run took no time. *windows* maps a name to (start, length) in s; the
    section opens with the first window.
    """
    if not activity.elapsed_s:
        return "", {}, {}
    columns = SpanColumns(activity)
    unit = time_scale(activity.elapsed_s)
    head: dict[str, Any] = columns.head | {"unit": unit, "windows": windows, "all": len(activity.names)}
    head["rows"] = ROWS if len(activity.names) > MANY else columns.head["nodes"]
    buttons = choice("windows", "part of the run", {name: name for name in windows}, next(iter(windows)))
    buttons = buttons.replace('class="choice"', 'class="choice" id="windows"')
    steps = "".join(
        f'<button type="button" class="plain" id="window-{name}">{name}</button>'
        for name in ("earlier", "later", "closer", "wider")
    )
    fields = "".join(
        f'<label>{word} <input type="number" id="window-{name}" min="0" step="any"> {unit[1]}</label>'
        for name, word in (("from", "from"), ("length", "length"))
    )
    key = "".join(f'<span><i style="background:{colour}"></i>{word}</span>' for word, colour in KEY)
    content = f"""<div class="controls">{fields}<span>{steps}</span></div>
<div class="controls" id="node-controls" hidden>
<label>nodes <select id="node-order"><option value="rank">by rank</option>
<option value="busy">busiest first</option></select></label>
<label>whose name contains <input type="search" id="node-name" size="12"></label></div>
<p class="key">{key}</p>
<div class="spans" id="timeline"></div>{PAGER}
<p class="note" id="window-status" role="status"></p>
<h3>How busy each device was, over the whole run</h3>
<div class="spans" id="busy"></div>{PAGER}
<p class="note" id="busy-status"></p>"""
    return (
        section("Where the time went", NOTE, content, buttons),
        {"span-head": json.dumps(head)},
        {"spans": columns.content},
    )
