"""Show results in notebooks: a title, a table and lines of text, without scripts or colours."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from simcluster.runs import words
from simcluster.runs.comparison.compare import RunPair
from simcluster.runs.folder import RunFolder
from simcluster.runs.sweep.sweep_folder import SweepFolder

MOST_ROWS = 20
MOST_SETTINGS = 8
LONGEST = 200

LINE = "border-top:1px solid rgba(128,136,146,.45)"
MEASURES = ("time_to_target_s", "elapsed_s", "steps", "loss", "accuracy", "bytes_sent", "joules")


def of_run(run: RunFolder) -> str:
    """Return the HTML that a notebook shows for *run*."""
    summary = run.summary
    rows = [(name, value) for name, value in _outcome(summary).items() if value != words.ABSENT]
    notes = [_error(summary)] if summary["status"] != "done" else []
    return card(f"{summary['algorithm']} on {summary['topology']}", [], rows, [*notes, f"folder {run.folder}"])


def of_sweep(sweep: SweepFolder) -> str:
    """Return the HTML that a notebook shows for *sweep*, with its first points."""
    table = sweep.table
    shown = [
        *sweep.columns,
        "seed",
        "status",
        *(name for name in MEASURES if name in table and table[name].notna().any()),
    ]
    rows = [[row[name] for name in shown] for _, row in table.head(MOST_ROWS).iterrows()]
    more = len(table) - len(rows)
    notes = [f"{more} more points are in .table"] if more else []
    title = f"{sweep.name}: {words.plural(len(table), 'point')}" + (f", {sweep.failed} failed" if sweep.failed else "")
    return card(title, shown, rows, [*notes, f"folder {sweep.folder}"])


def of_comparison(pairs: Sequence[RunPair]) -> str:
    """Return the HTML that a notebook shows for a comparison.

    It has a column per run, and the settings that differ.
    """
    runs = [pairs[0].a, *(pair.b for pair in pairs)]
    each = [_outcome(run.summary) for run in runs]
    rows = [[name, *(outcome[name] for outcome in each)] for name in each[0]]
    rows = [row for row in rows if any(value != words.ABSENT for value in row[1:])]
    notes = []
    for pair in pairs:
        same = {True: "the same weights", False: "other weights", None: "weights unknown in one"}[pair.same_weights]
        ratio = f", {pair.elapsed_ratio:.3g} times the time" if pair.elapsed_ratio is not None else ""
        notes.append(f"{pair.b.folder.name} against {pair.a.folder.name}: {same}{ratio}")
        told = [f"{one.key}: {_short(one.a)}, now {_short(one.b)}" for one in pair.settings[:MOST_SETTINGS]]
        more = len(pair.settings) - len(told)
        notes += [*told, *([f"{more} more settings differ"] if more > 0 else [])]
    return card(
        "Comparison", ["", *(run.folder.name for run in runs)], rows, [*notes, ".describe() has every difference"]
    )


def card(title: str, header: Sequence[str], rows: Iterable[Sequence[Any]], notes: Iterable[str]) -> str:
    """Return HTML with a title, a table and lines of text; every string is escaped."""
    pad = "padding:.25em .75em .25em 0;text-align:left;vertical-align:top"
    head = "".join(f'<th scope="col" style="{pad}">{escape(_short(name))}</th>' for name in header)
    body = "".join(
        f'<tr style="{LINE}">' + "".join(f'<td style="{pad}">{escape(_short(value))}</td>' for value in row) + "</tr>"
        for row in rows
    )
    table = f'<table style="border-collapse:collapse">{f"<thead><tr>{head}</tr></thead>" if head else ""}{body}</table>'
    lines = "".join(f'<div style="opacity:.85">{escape(line)}</div>' for line in notes)
    return f'<div style="overflow-x:auto"><div style="font-weight:600">{escape(title)}</div>{table}{lines}</div>'


def _outcome(summary: Mapping[str, Any]) -> dict[str, str]:
    clock = "virtual" if summary["backend"] == "sim" else "measured"
    weights = summary["weights_sha256"]
    return {
        "status": summary["status"],
        "backend": f"{summary['backend']}, seed {summary['seed']}",
        "time": f"{words.seconds(summary['elapsed_s'])} ({clock})",
        "steps": f"{summary['steps']:,}",
        "held-out loss": _short(summary["loss"]),
        "accuracy": words.ABSENT if summary["accuracy"] is None else words.accuracy(summary["accuracy"]),
        "sent": f"{words.size(summary['bytes_sent'])} in {summary['messages_sent']:,} messages",
        "energy": words.energy(summary["joules"]),
        "price": words.price(summary["price_usd"]),
        "weights": words.ABSENT if weights is None else str(weights)[:16],
    }


def _error(summary: Mapping[str, Any]) -> str:
    error = summary.get("error") or {}
    return f"{error.get('type', 'failed')}: {str(error.get('message', '')).splitlines()[0] if error else ''}"


def _short(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return words.ABSENT
    text = words.number(value) if isinstance(value, float) else str(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
