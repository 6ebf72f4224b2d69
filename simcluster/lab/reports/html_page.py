"""Write the self-contained HTML page of the reports of runs and sweeps.

Figures are JSON that cannot end its script element, and a content security policy keeps the page
from fetching anything. plotly.js is compressed: a script of the page inflates it, and the policy
allows the inflated script by its hash.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from html import escape
from typing import TYPE_CHECKING

from simcluster.runs import words
from simcluster.web.assets import asset, joined

SHARED = ("figures.js", "inflate.js", "dom.js")
REPORT = ("inflate.js", "figures.js", "report.js")
TIMELINE = ("dom.js", "chart.js", "span_data.js", "span_view.js", "timeline.js")
PLOTLY = "plotly"
"""The id of the element that holds plotly.js."""
CURVES = '<div class="curves"></div>'
"""The place where report.js puts the controls of a section's curves."""

LINES = '<p class="line-names" role="group" aria-label="lines"></p>'
"""The place where report.js puts the names of a section's lines; each shows or hides its line."""

if TYPE_CHECKING:
    import plotly.graph_objects as go


def page(
    title: str,
    body: str,
    figures: Mapping[str, go.Figure],
    data: Mapping[str, str] | None = None,
    packed: Mapping[str, bytes] | None = None,
) -> str:
    """Return the page as a string of about 2 MB, nearly all of it plotly.js.

    *body* is HTML with a place for each of the *figures*, such as `<div class="figure"
    data-figure="links"></div>`. *data* (JSON) and *packed* (bytes) are for the timeline, by the id
    of the element that holds them.
    """
    pairs = ",".join(f'"{name}":{figure.to_json()}' for name, figure in figures.items())
    own = {"figures": f"{{{pairs}}}", **(data or {})}
    scripts = [*REPORT, *(TIMELINE if packed else ())]
    return page_of(title, body, scripts, ["report.css"], own, packed or {}, has_plotly=bool(figures))


def page_of(
    title: str,
    body: str,
    scripts: Sequence[str],
    styles: Sequence[str],
    data: Mapping[str, str],
    packed: Mapping[str, bytes],
    *,
    has_plotly: bool,
) -> str:
    """Return a page with *scripts*, which are shared files or files next to report.js.

    The scripts find the JSON in *data* and the bytes in *packed* by the id of the element, and
    unpack the bytes with `inflated`.
    """
    sources = [_script(name) for name in scripts]
    held = "".join(_held(name, pack(content)) for name, content in packed.items())
    hashes = [_sha256(source) for source in sources]
    if has_plotly:
        plotly, sha256 = _plotly()
        held += _held(PLOTLY, plotly)
        hashes.append(sha256)
    policy = "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src " + " ".join(
        f"'sha256-{sha256}'" for sha256 in hashes
    )
    # Within a script element, only "<" could end the JSON, as in "</script>".
    harmless = {name: text.replace("<", "\\u003c") for name, text in data.items()}
    held += "".join(f'<script type="application/json" id="{name}">{text}</script>' for name, text in harmless.items())
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{asset("base.css")}{"".join(_asset(name) for name in styles)}</style>
</head>
<body>
<main>
{body}
</main>
{held}
{"".join(f"<script>{source}</script>" for source in sources)}
</body>
</html>
"""


def pack(content: bytes) -> str:
    """Return *content* as gzip in base64, without a date, for the page's function `inflated`."""
    return base64.b64encode(gzip.compress(content, 6, mtime=0)).decode()


@cache
def _plotly() -> tuple[str, str]:
    """Return (the source of plotly.js, packed by `pack`; its hash)."""
    # plotly.offline reads 5 MB from disk, so it is imported only when a page is written.
    from plotly.offline import get_plotlyjs

    source: str = get_plotlyjs()
    return pack(source.encode()), _sha256(source)


def _sha256(source: str) -> str:
    return base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()


def _held(name: str, packed: str) -> str:
    return f'<script type="text/plain" id="{name}">{packed}</script>'


def section(title: str, note: str, content: str = "", buttons: str | None = None) -> str:
    """Return a section: a heading with *buttons*, a note and the HTML *content*."""
    note_html = f'<p class="note">{escape(note)}</p>' if note else ""
    heading = f"<h2>{escape(title)}</h2>"
    if buttons is not None:
        heading = f'<div class="heading">{heading}{buttons}</div>'
    return f"<section>{heading}{note_html}{content}</section>"


def table(rows: Sequence[Mapping[str, str]], texts: Collection[str] = ()) -> str:
    """Return a table of *rows* (column -> HTML); the columns *texts* are flush left.

    A column without any known value is left out.
    """
    shown = [head for head in rows[0] if any(row[head] != words.ABSENT for row in rows)] if rows else []

    def html(tag: str, end: str, row: Mapping[str, str]) -> str:
        return "".join(f"<{tag}{' class=text' if head in texts else ''}>{row[head]}</{end}>" for head in shown)

    body = "".join(f"<tr>{html('td', 'td', row)}</tr>" for row in rows)
    head = html('th scope="col"', "th", {name: name for name in shown})
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def place(stem: str, value: str = "", switch: str = "") -> str:
    """Return a placeholder for figure STEM, or for STEM-VALUE if the buttons *switch* choose it."""
    if not switch:
        return f'<div class="figure" data-figure="{stem}"></div>'
    return f'<div class="figure" data-figure="{stem}-{value}" data-stem="{stem}" data-switch="{switch}"></div>'


def choice(name: str, label: str, values: Mapping[str, str], chosen: str) -> str:
    """Return buttons (value -> text) that choose the figure in places with `data-switch="NAME"`."""
    pressed = {value: "true" if value == chosen else "false" for value in values}
    buttons = "".join(
        f'<button data-value="{escape(value)}" aria-pressed="{pressed[value]}">{escape(word)}</button>'
        for value, word in values.items()
    )
    return f'<div class="choice" role="group" aria-label="{escape(label)}" data-for="{escape(name)}">{buttons}</div>'


def _script(name: str) -> str:
    return joined(asset(name) if name in SHARED else _asset(name))


def _asset(name: str) -> str:
    return asset(name, "simcluster.lab.reports")
