"""Draws the README's second picture: speed-ups of experiments/pays.yaml.

Rows of shelves are simulated when the picture is drawn, without numerics. Above them are the
prediction and the measurement of docs/figures/data/pays.json, once tools.gallery.pays.measure has
written it.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simcluster.lab.explain.baseline import baseline
from tools.gallery.pays.measure import DATA, EXPERIMENT, speed_up
from tools.gallery.svg import colour, number, picture, text

WIDTH, BOTTOM = 800.0, 32.0
LEFT, RIGHT, TOP, ROW = 420.0, 70.0, 58.0, 25.0
MOST = 8
SHARED = {"workload.batch_size": {"total": 1280, "by": "device"}}
SHELVES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("two Raspberry Pis on a cable", "pays", {}),
    ("eight Raspberry Pis on a switch", "pays", {"overrides": {"topology.workers": 8}}),
    ("three Macs, two Pis, batches by device", "pays", {"topology": "smolcluster", "overrides": SHARED}),
    ("the same five, the quickstart", "quickstart", {}),
)
"""(label, experiment, changes) of the simulated shelves."""

RULES = (".title{font-size:15px;font-weight:600}.one{stroke:var(--faint);stroke-dasharray:3 3}",)


def simulated(experiment: str, changes: Mapping[str, Any]) -> float:
    """Return the simulated speed-up against the fastest node alone, on the same samples."""
    with tempfile.TemporaryDirectory() as folder:
        chosen = EXPERIMENT.with_stem(experiment)
        more = {**changes, "overrides": {"numerics": "none", **changes.get("overrides", {})}}
        return baseline(chosen, out=Path(folder) / "run", **more).speed_up  # type: ignore[return-value]


def x_of(value: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * value / MOST


def draw(content: Mapping[str, Any] | None, shelves: Mapping[str, float]) -> str:
    """Return the picture of the measurement *content*, if any, and of label -> simulated speed-up."""
    rows = [("simulated", label, value, 0) for label, value in shelves.items()]
    if content is not None:
        where = f"two hosts that compute, {content['measured_on']}"
        real = [
            ("predicted", speed_up(content["predicted"]), 0),
            ("measured over TCP", speed_up(content["measured"]), 1),
        ]
        rows = [(where, label, value, shade) for label, value, shade in real] + rows
    base = TOP + ROW * len(rows)
    parts = [text(22, 34, "Where distribution pays: times as fast as one machine alone", "title")]
    parts.append(f'<path class="one" d="M{number(x_of(1))} {TOP - 8:g}V{number(base)}"/>')
    parts += [text(x_of(value), base + 14, f"{value}", "faint mid") for value in (0, 1, 2, 4, 6, 8)]
    for index, (where, label, value, shade) in enumerate(rows):
        y = TOP + ROW * index
        if index == 0 or rows[index - 1][0] != where:
            parts.append(text(22, y + 13, where, "faint"))
        parts.append(text(LEFT - 8, y + 13, label, "faint end"))
        width = x_of(value) - LEFT
        place = f'x="{number(LEFT)}" y="{number(y)}" width="{number(width)}" height="17"'
        parts.append(f'<rect {place} fill="{colour(shade)}"/>')
        parts.append(text(LEFT + width + 6, y + 13, f"{value:.2f}", "name"))
    title = "Speed-ups. " + "; ".join(f"{where}, {label}: {value:.2f}" for where, label, value, _ in rows)
    return picture(WIDTH, base + BOTTOM, title, parts, *RULES)


def drawn() -> str:
    """Return the picture of the simulated shelves and of the stored measurement, if any."""
    shelves = {label: simulated(experiment, changes) for label, experiment, changes in SHELVES}
    return draw(json.loads(DATA.read_text(encoding="utf-8")) if DATA.is_file() else None, shelves)
