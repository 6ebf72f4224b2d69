"""Charts of the papers' results, from experiments/papers/results.json.

Points are our results. Rings are the paper's own numbers or its theory.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from tests.support.root import ROOT
from tools.gallery.svg import colour, number, picture, text

RESULTS = ROOT / "experiments" / "papers" / "results.json"
WIDTH = 360.0
HEIGHT = 208.0
LEFT = 50.0
RIGHT = 18.0
TOP = 52.0
BOTTOM = 58.0

Check: TypeAlias = Mapping[str, Any]
EXPECTED = re.compile(r"([\d.]+)(?: s| ms)? ± ")


class Point(NamedTuple):
    """Our result at *x*, and the *expected* one, or None if there is no number."""

    x: str
    ours: float
    expected: float | None


@dataclass(frozen=True)
class Line:
    """A line through the results of the checks with names that match *check*.

    In the patterns, the group `x` of *check* or *value* is the horizontal position of a point, and
    the group `y` of *value* is its height.
    """

    name: str
    check: str
    value: str = r"(?P<y>[\d.]+)"


@dataclass(frozen=True)
class Chart:
    """A chart of the results of *paper*.

    *height* and *across* are the labels of the axes. If the horizontal positions have an order, the
    points of a line are *joined*. If *log*, the vertical axis is logarithmic.
    """

    paper: str
    title: str
    height: str
    across: str
    lines: tuple[Line, ...]
    log: bool = False
    joined: bool = True


CELL = r"(?P<x>1.*): a step$"
HALF = r"H=(?P<x>\d+): (?P<y>[\d.]+) s"
CHARTS = (
    Chart(
        "time_of_an_update", "The time of an update", "seconds", "gradients waited for, K",
        (Line("K-sync", r"K-sync, K = (?P<x>\d+)$"), Line("K-async", r"K-async, K = (?P<x>\d+)$")),
    ),
    Chart(
        "ssp", "SSP: slack against stragglers", "gradients per second", "bound on staleness, s",
        (
            Line("transient stragglers", r"transient, s (= )?(?P<x>\d+|infinite)( above .*)?: gradients/s$"),
            Line("a slow worker", r"persistent, s (= )?(?P<x>\d+|infinite): gradients/s$"),
        ),
    ),
    Chart(
        "staleness_aware_rate", "Staleness of n-softsync", "mean staleness", "n",
        (
            Line("equal workers", r"mean staleness of (?P<x>\d)-softsync, equal workers"),
            Line("exponential times", r"mean staleness of (?P<x>\d)-softsync, exponential times"),
        ),
    ),
    Chart(
        "asynchrony_begets_momentum", "Asynchrony begets momentum", "momentum", "workers",
        (Line("momentum fitted to the mean path", r"(?P<x>\d+) workers: momentum fitted"),),
    ),
    Chart(
        "gossip_in_four_networks", "A step in four networks", "seconds", "",
        (
            Line("D-PSGD", CELL, r"D-PSGD (?P<y>[\d.]+) s"),
            Line("ring", CELL, r"ring (?P<y>[\d.]+) s"),
            Line("parameter server", CELL, r"PS (?P<y>[\d.]+) s"),
        ),
        log=True,
        joined=False,
    ),
    Chart(
        "local_sgd_interval", "Local SGD: how often to average", "seconds to the loss", "steps per round, H",
        (Line("data dealt alike", "alike: the more H", HALF), Line("data apart", "apart: U-shaped", HALF)),
    ),
    Chart(
        "pipeline_bubble", "The bubble of a pipeline", "share idle", "",
        (
            Line("GPipe", r"gpipe, (?P<x>p = \d, m = \d+): bubble"),
            Line("1F1B", r"1f1b, (?P<x>p = \d, m = \d+): bubble"),
        ),
        joined=False,
    ),
    Chart(
        "zero_stages", "ZeRO: traffic by stage", "sent, in (p-1)/p M", "stage",
        (Line("bytes sent in a step", r"stage (?P<x>\d): bytes sent"),),
        joined=False,
    ),
    Chart(
        "power_sgd_crossing", "PowerSGD: where it stops paying", "time, dense over rank 2", "",
        (Line("speed-up", "time to the loss", r"(?P<x>\d+ [MG]bps): (?P<y>[\d.]+)"),),
        log=True,
    ),
    Chart(
        "more_devices", "Llama 2 on Raspberry Pis", "ms per token", "",
        (Line("a token", r"(?P<x>\d+B on \d x Pi \d)$"),),
        log=True,
        joined=False,
    ),
)  # fmt: skip


def checks() -> dict[str, list[Check]]:
    """Return paper -> its stored checks."""
    found: dict[str, list[Check]] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return found


def points(line: Line, found: Sequence[Check]) -> list[Point]:
    """Return the points of *line*, in the order of the checks.

    Raise ValueError if there are none.
    """
    made = []
    for check in found:
        if (named := re.match(line.check, check["name"])) is None:
            continue
        known = EXPECTED.match(check["expected"])
        for value in re.finditer(line.value, check["ours"]):
            places = named.groupdict() | value.groupdict()
            made.append(Point(places["x"], float(places["y"]), float(known[1]) if known else None))
            if "x" in named.groupdict():
                break
    if not made:
        raise ValueError(f"no check gives a point of {line.name!r}")
    return made


@dataclass(frozen=True)
class Plot:
    """The area of a chart.

    Horizontal positions are *places*. Heights begin at 0 or, if *log*, at a power of ten.
    """

    places: Sequence[str]
    ticks: Sequence[float]
    log: bool

    def x(self, place: str) -> float:
        room = WIDTH - LEFT - RIGHT
        return LEFT + room * (self.places.index(place) + 0.5) / len(self.places)

    def y(self, value: float) -> float:
        low, high = self.ticks[0], self.ticks[-1]
        share = math.log(value / low) / math.log(high / low) if self.log else (value - low) / (high - low)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share


def draw(chart: Chart, found: Sequence[Check]) -> str:
    """Return the picture of *chart* for the checks *found* of its paper."""
    lines = {line.name: points(line, found) for line in chart.lines}
    every = [point for row in lines.values() for point in row]
    heights = [value for point in every for value in (point.ours, point.expected) if value is not None]
    plot = Plot(list(dict.fromkeys(point.x for point in every)), _ticks(heights, chart.log), chart.log)
    parts = [text(10, 20, chart.title, "name"), text(10, 36, chart.height, "faint")]
    parts += [_level(plot, tick) for tick in plot.ticks]
    parts += [words for place in plot.places for words in _place(plot, place)]
    if chart.across:
        parts.append(text(WIDTH - RIGHT, HEIGHT - BOTTOM + 29, chart.across, "faint end"))
    for index, row in enumerate(lines.values()):
        aside = 0.0 if chart.joined else 9 * (index - (len(lines) - 1) / 2)
        parts += _line(plot, row, colour(index), aside, joined=chart.joined)
    parts += _names(list(lines), any(point.expected is not None for point in every))
    words = "; ".join(f"{name} {', '.join(f'{p.x}: {p.ours:g}' for p in row)}" for name, row in lines.items())
    return picture(WIDTH, HEIGHT, f"{chart.title}, {chart.height}: {words}", parts)


def _ticks(heights: Sequence[float], log: bool) -> list[float]:
    """Return round numbers that enclose *heights*: powers of ten, or multiples of one step from 0."""
    top = max(heights)
    if log:
        low, high = math.floor(math.log10(min(heights))), math.ceil(math.log10(top))
        return [10.0**power for power in range(low, high + 1)]
    power = 10.0 ** math.floor(math.log10(top))
    step = next(power * factor for factor in (0.2, 0.25, 0.5, 1.0, 2.0, 5.0) if top / (power * factor) <= 4)
    return [step * count for count in range(math.ceil(top / step - 1e-9) + 1)]


def _level(plot: Plot, tick: float) -> str:
    y = plot.y(tick)
    line = f'<path class="row" d="M{number(LEFT)} {number(y)}h{number(WIDTH - LEFT - RIGHT)}"/>'
    return line + text(LEFT - 6, y + 4, f"{tick:g}", "faint end")


def _place(plot: Plot, place: str) -> list[str]:
    """Return the label of *place*, split into two lines if it is long."""
    lines = re.split(", | on ", place)
    if len(lines) == 1 and 6.1 * len(place) > (WIDTH - LEFT - RIGHT) / len(plot.places) - 6:
        lines = place.rsplit(" ", 1)
    size = "tiny mid" if len(plot.places) > 6 else "faint mid"
    return [text(plot.x(place), HEIGHT - BOTTOM + 15 + 13 * k, line, size) for k, line in enumerate(lines)]


def _line(plot: Plot, row: Sequence[Point], shade: str, aside: float, *, joined: bool) -> list[str]:
    """Return our points, moved sideways by *aside*, and a ring at each expected value."""
    at = [(plot.x(point.x) + aside, plot.y(point.ours)) for point in row]
    path = "L".join(f"{number(x)} {number(y)}" for x, y in at)
    parts = [f'<path d="M{path}" fill="none" stroke="{shade}" stroke-width="1.6"/>'] if joined else []
    parts += [f'<circle cx="{number(x)}" cy="{number(y)}" r="2.6" fill="{shade}"/>' for x, y in at]
    rings = [(plot.x(point.x) + aside, plot.y(point.expected)) for point in row if point.expected is not None]
    ring = '<circle cx="{}" cy="{}" r="5.2" fill="none" stroke="{}" stroke-width="1.2"/>'
    return parts + [ring.format(number(x), number(y), shade) for x, y in rings]


def _names(names: Sequence[str], has_rings: bool) -> list[str]:
    parts = []
    x = 14.0
    y = HEIGHT - 14.0
    for index, name in enumerate(names):
        parts.append(f'<circle cx="{number(x)}" cy="{number(y - 4)}" r="3" fill="{colour(index)}"/>')
        parts.append(text(x + 8, y, name, "faint"))
        x += 8 + 6.1 * len(name) + 16
    return parts + ([text(WIDTH - RIGHT, y, "ring: expected", "faint end")] if has_rings else [])


def drawn(chart: Chart) -> str:
    """Return the picture of *chart* from the stored results."""
    return draw(chart, checks()[chart.paper])
