"""A self-contained page: a body, figures, the common style. For the reports of runs and of sweeps.

Figures travel as JSON that cannot end its script element, and a content security policy forbids the page to fetch
anything.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from simcluster.web.assets import asset, joined

SHARED = ("figures.js",)
CURVES = '<div class="curves"></div>'
"""The place of the controls of a section's curves, which report.js makes."""

LINES = '<p class="line-names" role="group" aria-label="lines"></p>'
"""The place of the names of a section's lines, which report.js fills; each shows or hides its line."""

if TYPE_CHECKING:
    import plotly.graph_objects as go


def page(title: str, body: str, figures: Mapping[str, go.Figure]) -> str:
    """Return the page as a string of about 5 MB, nearly all of it plotly.js.

    *body* is HTML that names its *figures* in places such as `<div class="figure" data-figure="links"></div>`.
    """
    pairs = ",".join(f'"{name}":{figure.to_json()}' for name, figure in figures.items())
    return page_of(title, body, "figures", f"{{{pairs}}}", ["figures.js", "report.js"], ["report.css"])


def page_of(title: str, body: str, data_id: str, data: str, scripts: Sequence[str], styles: Sequence[str]) -> str:
    """Return a page with *scripts*, files next to report.js or shared, that read the JSON *data* in *data_id*."""
    # plotly.offline reads 5 MB from disk, so it is imported only where a page is made.
    from plotly.offline import get_plotlyjs

    sources = [get_plotlyjs(), *(_script(name) for name in scripts)]
    policy = "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src " + " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in sources
    )
    # In a script element only "<" could start anything but JSON.
    harmless = data.replace("<", "\\u003c")
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
<script type="application/json" id="{data_id}">{harmless}</script>
{"".join(f"<script>{source}</script>" for source in sources)}
</body>
</html>
"""


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
    return asset(name, "simcluster.reports")
