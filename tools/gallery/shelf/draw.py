"""Draws the README's picture from docs/figures/data/shelf.json.

It shows hosts, links, and loss curves over time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tools.gallery.shelf.measure import DATA, SHELF
from tools.gallery.svg import colour, number, picture, text

WIDTH, HEIGHT = 800.0, 348.0
LEFT = 372.0
RIGHT = 24.0
TOP = 62.0
BOTTOM = 70.0
BOX, PLACES = (114.0, 46.0), {"n0": (76, 96), "n1": (76, 212), "sw": (180, 154), "n2": (272, 154), "n3": (272, 264)}
RULES = (
    ".host{fill:var(--row);stroke:#4a6fa5;stroke-width:1.5}.switch{fill:var(--row);stroke:var(--faint)}",
    ".link{stroke:var(--faint);stroke-width:3}.thin{stroke-width:1.8}.label{fill:var(--page)}",
    ".title{font-size:15px;font-weight:600}.leader{stroke:var(--faint);stroke-width:.8;stroke-dasharray:2 3}",
)
HEIGHTS = (1.72, 2.32)
"""Alternating heights of the labels, so that labels of curves with close ends do not overlap."""

LAST_S = 20
MOST_LOSS = 2.5
STEP_S = 5
STEP_LOSS = 0.5


def x_of(time_s: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * time_s / LAST_S


def y_of(loss: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * loss / MOST_LOSS


def draw(content: Mapping[str, Any]) -> str:
    """Return the picture of a measured shelf."""
    runs: Mapping[str, Any] = content["runs"]
    parts = [text(22, 34, "A shelf", "title"), text(LEFT - 30, 34, "Its prediction and its run", "title")]
    parts += [*_shelf(), *_axes()]
    for index, (name, run) in enumerate(runs.items()):
        parts += _curves(index, name, run)
    equal = [run["predicted"]["weights_sha256"] == run["measured"]["weights_sha256"] for run in runs.values()]
    parts += _legend(all_equal=all(equal))
    day = f"calibrated, predicted, then run over TCP, {content['measured_on']}"
    parts += [text(22, HEIGHT - 34, "four hosts, network namespaces of one machine:", "faint")]
    parts += [text(22, HEIGHT - 18, day, "faint")]
    times = "; ".join(f"{name}: {_times(run)}" for name, run in runs.items())
    title = f"A shelf of four hosts, and its loss against seconds, predicted and measured. {times}"
    return picture(WIDTH, HEIGHT, title, parts, *RULES)


def _times(run: Mapping[str, Any]) -> str:
    return f"predicted {run['predicted']['elapsed_s']:.1f} s, measured {run['measured']['elapsed_s']:.1f} s"


def _shelf() -> list[str]:
    parts = []
    for a, b, bandwidth, latency in SHELF.links:
        (ax, ay), (bx, by) = PLACES[a], PLACES[b]
        thin = " thin" if bandwidth == "20 Mbps" else ""
        parts.append(f'<path class="link{thin}" d="M{ax} {ay}L{bx} {by}"/>')
        if latency != "0 s":
            parts.append(text((ax + bx) / 2 - 10, (ay + by) / 2 + 4, f"{bandwidth}, {latency}", "faint end"))
    parts.append(text(180, 126, "50 Mbps each", "faint mid"))
    for name, pace_s in SHELF.nodes.items():
        x, y = PLACES[name]
        place = f'x="{number(x - BOX[0] / 2)}" y="{number(y - BOX[1] / 2)}" width="{BOX[0]:g}" height="{BOX[1]:g}"'
        parts.append(f'<rect class="host" {place} rx="6"/>')
        parts.append(text(x, y - 3, name, "name mid"))
        parts.append(text(x, y + 14, f"{pace_s * 1e3:g} ms a gradient", "faint mid"))
    x, y = PLACES["sw"]
    parts.append(f'<rect class="switch" x="{x - 22}" y="{y - 12}" width="44" height="24" rx="12"/>')
    return [*parts, text(x, y + 4, "switch", "faint mid")]


def _axes() -> list[str]:
    parts = []
    for count in range(round(MOST_LOSS / STEP_LOSS) + 1):
        y = y_of(count * STEP_LOSS)
        parts.append(f'<path class="row" d="M{number(LEFT)} {number(y)}H{number(WIDTH - RIGHT)}"/>')
        parts.append(text(LEFT - 8, y + 4, f"{count * STEP_LOSS:g}", "faint end"))
    base = HEIGHT - BOTTOM + 16
    parts += [text(x_of(time_s), base, f"{time_s} s", "faint mid") for time_s in range(0, LAST_S + 1, STEP_S)]
    return [*parts, text(LEFT - 30, 54, "held-out loss", "faint")]


def _curves(index: int, name: str, run: Mapping[str, Any]) -> list[str]:
    """Return the predicted line, the measured dots, and a label with both times above the
    last dot.
    """
    shade = colour(index)
    line = "L".join(f"{number(x_of(time_s))} {number(y_of(loss))}" for time_s, loss in run["predicted"]["curve"])
    parts = [f'<path d="M{line}" fill="none" stroke="{shade}" stroke-width="1.8"/>']
    parts += [_dot(point, shade) for point in run["measured"]["curve"]]
    end_s, loss = run["measured"]["curve"][-1]
    x, y = x_of(end_s), y_of(HEIGHTS[index % 2])
    parts.append(f'<path class="leader" d="M{number(x)} {number(y + 40)}V{number(y_of(loss) - 5)}"/>')
    parts.append(f'<text class="name mid" style="fill:{shade}" x="{number(x)}" y="{number(y)}">{name}</text>')
    for row, kind in enumerate(("predicted", "measured")):
        parts.append(text(x, y + 16 + 15 * row, f"{kind} {run[kind]['elapsed_s']:.1f} s", "faint mid"))
    return parts


def _dot(point: Sequence[float], shade: str) -> str:
    return f'<circle cx="{number(x_of(point[0]))}" cy="{number(y_of(point[1]))}" r="2.8" fill="{shade}"/>'


def _legend(*, all_equal: bool) -> list[str]:
    y = HEIGHT - 22
    line = f'<path d="M{LEFT:g} {y - 4:g}h26" stroke="{colour(0)}" stroke-width="1.8"/>'
    dots = "".join(_dot_at(LEFT + 102 + 10 * k, y - 4) for k in range(3))
    parts = [line, text(LEFT + 32, y, "predicted", "faint"), dots, text(LEFT + 130, y, "measured", "faint")]
    return parts + ([text(WIDTH - RIGHT, y, "the same weights, to the bit", "name end")] if all_equal else [])


def _dot_at(x: float, y: float) -> str:
    return f'<circle cx="{number(x)}" cy="{number(y)}" r="2.8" fill="{colour(0)}"/>'


def drawn() -> str:
    """Return the picture of the stored measurement."""
    return draw(json.loads(DATA.read_text(encoding="utf-8")))
