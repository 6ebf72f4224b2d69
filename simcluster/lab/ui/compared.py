"""Compare finished runs: curves over one axis, numbers, and the settings that differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, get_args

import msgspec

from simcluster.errors import UsageError
from simcluster.lab.reports.plots import Panel, convergence
from simcluster.lab.reports.scales import XAxis, axes_of
from simcluster.results import Run
from simcluster.runs import words
from simcluster.runs.flat_config import flat

MOST_RUNS = 12
MOST_SETTINGS = 400


def compared(names: Sequence[str], runs: Sequence[Run], x: XAxis) -> dict[str, Any]:
    """Return the axes that all *runs* have, a figure over *x* for each panel, and two tables.

    Raise UsageError for too many runs or an axis that a run lacks.
    """
    if not 0 < len(runs) <= MOST_RUNS:
        raise UsageError("runs", str(len(runs)), f"1 to {MOST_RUNS} runs")
    axes = axes_of(runs)
    if x not in axes:
        raise UsageError("x", repr(x), f"one of {', '.join(axes)}")
    figures = {}
    for panel in get_args(Panel):
        try:
            figures[panel] = _named(names, convergence(runs, x, [panel]).to_dict())
        except UsageError:
            continue  # No run recorded this panel.
    return {"axes": axes, "figures": figures, "numbers": _numbers(runs), "settings": _settings(runs)}


def _named(names: Sequence[str], figure: dict[str, Any]) -> dict[str, Any]:
    """Name each run's line after its folder, since several runs may have the same label."""
    if len(names) > 1:
        lines = [line for line in figure["data"] if line.get("name")]
        if len(lines) == len(names):
            for name, line in zip(names, lines, strict=True):
                line["name"] = line["legendgroup"] = name.replace("&", "&amp;").replace("<", "&lt;")
    return figure


def _numbers(runs: Sequence[Run]) -> list[list[str]]:
    """Return the rows of the table of results, as (name, a cell per run)."""
    forms: dict[str, tuple[str, Callable[[Any], str]]] = {
        "state": ("status", str),
        "accuracy": ("accuracy", words.accuracy),
        "loss": ("loss", words.number),
        "time": ("elapsed_s", words.seconds),
        "steps": ("steps", words.count),
        "sent": ("bytes_sent", words.size),
        "energy": ("joules", words.energy),
    }
    return [[name, *(form(run.summary.get(key)) for run in runs)] for name, (key, form) in forms.items()]


def _settings(runs: Sequence[Run]) -> list[list[str]]:
    """Return rows of (dotted key, a cell per run) for the settings that differ between runs."""
    configs = [flat(run.config) for run in runs]
    keys = dict.fromkeys(key for config in configs for key in config)
    rows = [[key, *(_said(config, key) for config in configs)] for key in keys]
    return [row for row in rows if len(set(row[1:])) > 1][:MOST_SETTINGS]


def _said(config: dict[str, Any], key: str) -> str:
    if key not in config:
        return words.ABSENT
    value = config[key]
    return value[:200] if isinstance(value, str) else msgspec.json.encode(value).decode()[:200]
