"""Common parts of all drawn pictures: colours for light and dark systems, texts, and a background.

A picture needs a background, because a page may be dark although its reader's system is light.
Pictures contain no scripts or fonts. Equal data gives equal bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from simcluster.lab.reports.figure_style import COMPUTE, LINES, SEND

LIGHT = {"ink": "#1f2430", "faint": "#5d6675", "page": "#ffffff", "rule": "#dde2ea", "row": "#eef1f6"}
DARK = {"ink": "#e8ebf1", "faint": "#a3adbd", "page": "#14171d", "rule": "#2e3542", "row": "#222936"}
FONT = 'system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif'


def style(*more: str) -> str:
    """Return the style sheet of a picture, followed by the rules *more*."""

    def colours(known: dict[str, str]) -> str:
        return "".join(f"--{name}:{value};" for name, value in known.items())

    return (
        f"<style>svg{{{colours(LIGHT)}font-family:{FONT}}}"
        f"@media(prefers-color-scheme:dark){{svg{{{colours(DARK)}}}}}"
        "text{fill:var(--ink);font-size:12px}.faint,.tiny{fill:var(--faint);font-size:11px}.tiny{font-size:9px}.name{font-weight:600}"
        ".mid{text-anchor:middle}.end{text-anchor:end}.ground{fill:var(--page);stroke:var(--rule)}"
        f".work{{fill:{COMPUTE}}}.sent{{stroke:{SEND};fill:none}}.tip{{fill:{SEND}}}.row{{stroke:var(--row)}}"
        f"{''.join(more)}</style>"
    )


def picture(width: float, height: float, title: str, parts: Sequence[str], *rules: str) -> str:
    """Return the text of an SVG file: *parts* on a background.

    Screen readers read *title* instead of the picture.
    """
    ground = f'<rect class="ground" x=".5" y=".5" width="{number(width - 1)}" height="{number(height - 1)}" rx="8"/>'
    size = f'viewBox="0 0 {number(width)} {number(height)}" width="{number(width)}" height="{number(height)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(title)}" {size}>'
    return f"{head}{style(*rules)}{ground}{''.join(parts)}</svg>\n"


def number(value: float) -> str:
    """Return *value*, rounded to one decimal, in its shortest form."""
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")


def text(x: float, y: float, words: str, classes: str = "") -> str:
    """Return a text element for *words*.

    Its baseline begins at (x, y), unless *classes* change its anchor.
    """
    named = f' class="{classes}"' if classes else ""
    return f'<text x="{number(x)}" y="{number(y)}"{named}>{escape(words)}</text>'


def colour(index: int) -> str:
    """Return the colour of line number *index*, which is the same as in reports."""
    return LINES[index % len(LINES)]
