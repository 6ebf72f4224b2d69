"""Plotly's markup and colours as matplotlib has them."""

from __future__ import annotations

import re
from html import unescape
from typing import TypeAlias

Colour: TypeAlias = tuple[float, float, float, float]

_TAG = re.compile(r"<[^<>]*>")
_RGB = re.compile(r"rgba?\(\s*([\d.]+)\s*,\s*([\d.]+)\s*,\s*([\d.]+)\s*(?:,\s*([\d.]+)\s*)?\)")


def plain(text: str | None) -> str:
    """*text* without its tags, its breaks as new lines."""
    lines = (text or "").replace("<br>", "\n")
    return unescape(_TAG.sub("", lines))


def colour(text: str, opacity: float | None = None) -> Colour:
    """'#2f7fb8' or 'rgba(47,127,184,0.5)', thinner by *opacity*."""
    share = 1.0 if opacity is None else float(opacity)
    found = _RGB.fullmatch(text.strip())
    if found is None:
        from matplotlib.colors import to_rgba

        red, green, blue, alpha = to_rgba(text)
        return red, green, blue, alpha * share
    red, green, blue = (float(part) / 255 for part in found.groups()[:3])
    return red, green, blue, float(found[4] or 1.0) * share


def readable_on(background: Colour) -> str:
    """Black or white, whichever can be read on *background* over paper."""
    red, green, blue, alpha = background
    light = (0.299 * red + 0.587 * green + 0.114 * blue) * alpha + (1 - alpha)
    return "#10151b" if light > 0.5 else "white"
