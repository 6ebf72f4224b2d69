"""A self-contained page: a body, figures, the common style. For the reports of runs and of sweeps.

Figures travel as JSON that cannot end its script element, and a content security policy forbids the page to fetch
anything. plotly.js is compressed: the page's script inflates it, and the policy allows what comes out by its hash.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from typing import TYPE_CHECKING

from simcluster.web.assets import asset, joined

SHARED = ("figures.js", "inflate.js", "dom.js")
REPORT = ("inflate.js", "figures.js", "report.js")
TIMELINE = ("dom.js", "chart.js", "span_data.js", "span_view.js", "timeline.js")
PLOTLY = "plotly"
"""The element that holds plotly.js."""
CURVES = '<div class="curves"></div>'
"""The place of the controls of a section's curves, which report.js makes."""

LINES = '<p class="line-names" role="group" aria-label="lines"></p>'
"""The place of the names of a section's lines, which report.js fills; each shows or hides its line."""

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

    *body* is HTML that names its *figures* in places such as `<div class="figure" data-figure="links"></div>`. *data*,
    JSON, and *packed*, bytes, are for the timeline, by the id of their element.
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
    """Return a page with *scripts*, files next to report.js or shared. By the id of their element they read the JSON in
    *data* and, with `inflated`, the bytes in *packed*.
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
    # In a script element only "<" could start anything but JSON.
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
    """Return *content* as `inflated` of the page's scripts reads it: gzip in base64, the same bytes every time."""
    return base64.b64encode(gzip.compress(content, 6, mtime=0)).decode()


@cache
def _plotly() -> tuple[str, str]:
    """Return (plotly.js packed, its hash)."""
    # plotly.offline reads 5 MB from disk, so it is imported only where a page is made.
    from plotly.offline import get_plotlyjs

    source: str = get_plotlyjs()
    return pack(source.encode()), _sha256(source)


def _sha256(source: str) -> str:
    return base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()


def _held(name: str, packed: str) -> str:
    return f'<script type="text/plain" id="{name}">{packed}</script>'


def section(title: str, note: str, content: str = "", buttons: str | None = None) -> str:
    """Return a card with a heading, a sentence and HTML *content*; *buttons* stand next to the heading."""
    note_html = f'<p class="note">{escape(note)}</p>' if note else ""
    heading = f"<h2>{escape(title)}</h2>"
    if buttons is not None:
        heading = f'<div class="heading">{heading}{buttons}</div>'
    return f"<section>{heading}{note_html}{content}</section>"


def place(stem: str, value: str = "", switch: str = "") -> str:
    """Return the place of the figure STEM, or of STEM-VALUE, with the *value* that the buttons *switch* choose."""
    if not switch:
        return f'<div class="figure" data-figure="{stem}"></div>'
    return f'<div class="figure" data-figure="{stem}-{value}" data-stem="{stem}" data-switch="{switch}"></div>'


def choice(name: str, label: str, values: Mapping[str, str], chosen: str) -> str:
    """Return buttons, value -> word, to switch figures STEM-VALUE in places with `data-switch="name"` and a stem."""
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
