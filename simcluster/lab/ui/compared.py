"""Several finished runs next to each other: their curves over one axis, their numbers, and the settings that differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import msgspec

from simcluster.errors import Problem, UsageError
from simcluster.lab.reports.plots import Panel, convergence
from simcluster.lab.reports.scales import XAxis, axes_of
from simcluster.results import Run
from simcluster.runs import words
from simcluster.runs.flat_config import flat

MOST_RUNS = 12
MOST_SETTINGS = 400


def compared(names: Sequence[str], runs: Sequence[Run], x: XAxis) -> dict[str, Any]:
    """Return the axes that all *runs* have, a figure per panel over *x*, and two tables. Raises UsageError."""
    if not 0 < len(runs) <= MOST_RUNS:
        raise UsageError(Problem("runs", str(len(runs)), f"1 to {MOST_RUNS} runs"))
    axes = axes_of(runs)
    if x not in axes:
        raise UsageError(Problem("x", repr(x), f"one of {', '.join(axes)}"))
    figures = {}
    for panel in get_args(Panel):
        try:
            figures[panel] = _named(names, convergence(runs, x, [panel]).to_dict())
        except UsageError:
            continue  # none of the runs recorded it
    return {"axes": axes, "figures": figures, "numbers": _numbers(runs), "settings": _settings(runs)}


def _named(names: Sequence[str], figure: dict[str, Any]) -> dict[str, Any]:
    """Let lines of several runs be called by the runs' folders, which differ where labels may not."""
    if len(names) > 1:
        lines = [line for line in figure["data"] if line.get("name")]
        if len(lines) == len(names):
            for name, line in zip(names, lines, strict=True):
                line["name"] = line["legendgroup"] = name.replace("&", "&amp;").replace("<", "&lt;")
    return figure


def _numbers(runs: Sequence[Run]) -> list[list[str]]:
    """Return rows of (name, a cell per run)."""
    found = [run.summary for run in runs]
    return [
        ["state", *(one["status"] for one in found)],
        ["accuracy", *(words.accuracy(one["accuracy"]) for one in found)],
        ["loss", *(words.number(one["loss"]) for one in found)],
        ["time", *(words.seconds(one["elapsed_s"]) for one in found)],
        ["steps", *(words.count(one["steps"]) for one in found)],
        ["sent", *(words.size(one["bytes_sent"]) for one in found)],
        ["energy", *(words.energy(one.get("joules")) for one in found)],
    ]


def _settings(runs: Sequence[Run]) -> list[list[str]]:
    """Return rows of (dotted key, a cell per run) for the settings that are not the same in all."""
    configs = [flat(run.config) for run in runs]
    keys = dict.fromkeys(key for config in configs for key in config)
    rows = [[key, *(_said(config, key) for config in configs)] for key in keys]
    return [row for row in rows if len(set(row[1:])) > 1][:MOST_SETTINGS]


def _said(config: dict[str, Any], key: str) -> str:
    if key not in config:
        return words.ABSENT
    value = config[key]
    return value[:200] if isinstance(value, str) else msgspec.json.encode(value).decode()[:200]
