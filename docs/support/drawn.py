"""Small figures for the documentation's pages: SVG in the colours of the page, light or dark, of any width."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

WIDTH, HEIGHT, LEFT, RIGHT, BOTTOM = 480, 260, 58, 96, 46  # narrow, so that a phone shows letters large enough
COLOURS = ("#4c8bf5", "#e07b39", "#2f9e77", "#a66bd4", "#c9a227")


class Drawing:
    """An SVG that a page shows as it is."""

    def __init__(self, parts: Sequence[str], height: float, title: str, words: str) -> None:
        self.words = f"Figure: {title}, {words}"
        self.svg = (
            f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(title)}" font-size="15"'
            f' font-family="inherit" fill="currentColor" style="width:100%;max-width:{1.15 * WIDTH:g}px">'
            f"{''.join(parts)}</svg>"
        )

    def _repr_html_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return self.words


def bars(title: str, values: Mapping[str, float], unit: str) -> Drawing:
    """Draw a horizontal bar for each of *values*, with its number."""
    most, start, row = max(values.values()), 160, 28
    parts = []
    for number, (name, value) in enumerate(values.items()):
        y, length = 6 + number * row, (WIDTH - start - 80) * value / most
        parts.append(f'<text x="{start - 8}" y="{y + 16}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect x="{start}" y="{y}" width="{length:.1f}" height="{row - 8}" fill="{COLOURS[0]}"/>')
        parts.append(f'<text x="{start + length + 8:.1f}" y="{y + 16}">{_digits(value)} {escape(unit)}</text>')
    return Drawing(parts, 6 + len(values) * row, title, f"{unit}. {_listed(values)}")


@dataclass(frozen=True)
class Axis:
    """Places on an axis that is logarithmic, or begins at zero."""

    name: str
    least: float
    most: float
    logarithmic: bool
    start: float
    end: float

    def place(self, value: float) -> float:
        """Return the pixel of *value*."""
        if self.logarithmic:
            share = math.log(value / self.least) / math.log(self.most / self.least)
        else:
            share = (value - self.least) / (self.most - self.least)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Return round numbers within the axis."""
        if self.logarithmic:
            powers = range(math.ceil(math.log10(self.least) - 1e-9), math.floor(math.log10(self.most) + 1e-9) + 1)
            return [10.0**power for power in powers]
        step = 10.0 ** math.floor(math.log10(self.most - self.least))
        step = next(step * part for part in (0.2, 0.5, 1, 2) if (self.most - self.least) / (step * part) <= 6)
        first = math.ceil(self.least / step - 1e-9)
        return [number * step for number in range(first, math.floor(self.most / step + 1e-9) + 1)]


def lines(
    title: str,
    series: Mapping[str, Mapping[float, float]],
    x: str,
    y: str,
    *,
    log_x: bool = False,
    log_y: bool = False,
) -> Drawing:
    """Draw a line with points for each of *series*, which map x to y."""
    xs = [value for points in series.values() for value in points]
    ys = [value for points in series.values() for value in points.values()]
    across = Axis(x, min(xs), max(xs), log_x, LEFT, WIDTH - RIGHT)
    up = Axis(y, min(ys) if log_y else 0.0, max(ys), log_y, HEIGHT - BOTTOM, 26)
    parts = _frame(across, up)
    ends: list[float] = []
    for (name, points), colour in zip(series.items(), COLOURS, strict=False):
        places = [(across.place(at), up.place(value)) for at, value in points.items()]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        parts += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3.5" fill="{colour}"/>' for px, py in places]
        end = places[-1][1] + 5
        while any(abs(end - other) < 17 for other in ends):  # names do not cover each other
            end += 3
        ends.append(end)
        parts.append(f'<text x="{places[-1][0] + 9:.1f}" y="{end:.1f}" fill="{colour}">{escape(name)}</text>')
    listed = ". ".join(f"{name}: {_listed(points)}" for name, points in series.items())
    return Drawing(parts, max(HEIGHT, *ends), title, f"{y} by {x}. {listed}")


def _listed(values: Mapping[Any, float]) -> str:
    """Return *values* with their names or places, for readers of text."""
    names = (f"{name:,g}" if isinstance(name, (int, float)) else name for name in values)
    return "; ".join(f"{name}: {_digits(value)}" for name, value in zip(names, values.values(), strict=True))


def _digits(value: float) -> str:
    """Return *value* to three digits, or to a whole number if it is larger."""
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"


def _frame(across: Axis, up: Axis) -> list[str]:
    """Return the grid, its numbers and the names of both axes."""
    parts = []
    for tick in up.ticks():
        y = up.place(tick)
        parts.append(
            f'<line x1="{across.start}" x2="{across.end}" y1="{y:.1f}" y2="{y:.1f}" stroke="currentColor"'
            f' stroke-opacity="0.18"/><text x="{across.start - 7}" y="{y + 5:.1f}" text-anchor="end">{tick:g}</text>'
        )
    for tick in across.ticks():
        parts.append(f'<text x="{across.place(tick):.1f}" y="{up.start + 20}" text-anchor="middle">{tick:g}</text>')
    middle = (across.start + across.end) / 2
    parts.append(f'<text x="{middle}" y="{up.start + 40}" text-anchor="middle">{escape(across.name)}</text>')
    parts.append(f'<text x="0" y="13">{escape(up.name)}</text>')
    return parts
