"""The page docs/fidelity.md and its tables: the error and the predicted interval of each scenario."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean, median
from textwrap import wrap

from tools.netns.fidelity import Kept, Outcome

WIDTH = 120
Condition = tuple[str, str]
"""(title of a section, name of its table)."""
MOST_USED_IDLE = 0.9
"""The limit on used CPU time if there is no other work.

Hosts use less, since devices are pauses.
"""

NOTES = Path(__file__).with_name("notes.md")
"""Remarks on the numbers. They are in a separate file, so that a new table keeps them."""


def report(conditions: Mapping[Condition, Kept]) -> str:
    """Return the whole page, with a section for each of *conditions*."""
    release = ".".join(platform.release().split(".")[:2])
    machine = f"{os.cpu_count()} cores for all hosts together, {platform.system()} {release}"
    blocks = [
        f"# Predicted against measured\n\nMade by `make fidelity` and `make fidelity-busy`; {machine}.",
        *(_condition(title, table, kept) for (title, table), kept in conditions.items()),
        NOTES.read_text(encoding="utf-8").rstrip(),
    ]
    return "\n\n".join(blocks) + "\n"


def _condition(title: str, table: str, kept: Kept) -> str:
    paragraphs = [wrap(summary(kept.outcomes()), WIDTH), wrap(machine_words(kept), WIDTH)]
    return "\n\n".join([f"## {title}", *map("\n".join, paragraphs), f"[All scenarios](tables/{table}.csv)"])


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return sentences on the errors, the intervals, and the order of scenarios."""
    steps, runs = ([abs(outcome.errors[which]) for outcome in outcomes] for which in (0, 1))
    spreads = [_spread(outcome.steps_s) for outcome in outcomes]
    repeats = sum(len(outcome.measured) for outcome in outcomes)
    inside = [covered(outcomes, which) for which in (0, 1)]
    levels = sorted({round(100 * part["level"]) for outcome in outcomes for part in outcome.intervals})
    level = f"{levels[0]} %" if len(levels) == 1 else f"{levels[0]} to {levels[-1]} %"
    widths = [
        (step["high"] - step["low"]) / outcome.step_s[1] for outcome in outcomes for step in outcome.intervals[:1]
    ]
    return (
        f"Of {len(outcomes)} scenarios the median error is {_percent(median(steps))} for the time of a step and "
        f"{_percent(median(runs))} for the whole run; the worst are {_percent(max(steps))} and {_percent(max(runs))}. "
        f"Of {repeats} measured runs, {inside[0]} ({inside[0] / repeats:.0%}) have a step time inside the predicted "
        f"interval of {level}, and {inside[1]} ({inside[1] / repeats:.0%}) a run time; the median interval of a step "
        f"is {_percent(median(widths))} wide. Repeated measurements of a step differ by {_percent(median(spreads))} in "
        f"the median and by {_percent(max(spreads))} at most. {_order(outcomes)}"
    ).replace("%)", " %)")


def machine_words(kept: Kept) -> str:
    """Return sentences on the machine's load during the runs, and on repeated runs."""
    notes = [note for note in kept.notes.values() if "cpu" in note]
    if not notes:
        return ""
    used, stolen = (fmean(note["cpu"][which] for note in notes) for which in (0, 1))
    again = sum(note["again"] for note in notes)
    condition = kept.notes.get("condition", {})
    return (
        f"Measured on {condition.get('day', 'an unknown day')} in {condition.get('took_s', 0.0) / 60:.0f} minutes. The "
        f"cores were in use for {_percent(used)} of the time, hosts included, and {_percent(stolen)} of it was stolen; "
        f"{again} runs were repeated because the machine disturbed them."
        + (
            " Other work used part of the cores, so the machine was not idle."
            if used > MOST_USED_IDLE and not condition.get("busy")
            else ""
        )
    )


COLUMNS = (
    *("network", "algorithm", "message", "step, ms", "interval, ms", "measured, ms", "spread", "off by", "inside"),
    "run off by",
)


def row(outcome: Outcome) -> list[str]:
    """Return the cells of a row: the prediction with its interval, the measured time, and the
    errors.
    """
    (step, real_step), (step_error, run_error) = outcome.step_s, outcome.errors
    low, high = (outcome.intervals[0][side] for side in ("low", "high"))
    return [
        *(outcome.network, outcome.algorithm, outcome.size, f"{step * 1e3:.1f}"),
        *(f"{low * 1e3:.1f}-{high * 1e3:.1f}", f"{real_step * 1e3:.1f}", f"{_spread(outcome.steps_s):.1%}"),
        *(f"{step_error:+.1%}", f"{covered([outcome], 0)}/{len(outcome.measured)}", f"{run_error:+.1%}"),
    ]


def covered(outcomes: Sequence[Outcome], which: int) -> int:
    """Count the measured times of steps (*which* is 0) or runs (1) within their predicted
    intervals.
    """
    return sum(
        outcome.intervals[which]["low"] <= time_s <= outcome.intervals[which]["high"]
        for outcome in outcomes
        for time_s in (outcome.steps_s, outcome.runs_s)[which]
    )


def swapped(outcomes: Sequence[Outcome]) -> list[tuple[Outcome, Outcome]]:
    """Return the pairs of scenarios with step times that are predicted in the wrong order."""
    return [(a, b) for a, b in combinations(outcomes, 2) if _slower(a, b, 0) != _slower(a, b, 1)]


def _slower(a: Outcome, b: Outcome, which: int) -> bool:
    return a.step_s[which] > b.step_s[which]


def _order(outcomes: Sequence[Outcome]) -> str:
    wrong = swapped(outcomes)
    pairs = len(outcomes) * (len(outcomes) - 1) // 2
    words = f"The slower of two scenarios is predicted correctly for {pairs - len(wrong)} of {pairs} pairs"
    if not wrong:
        return f"{words}."
    apart = max(abs(a.step_s[1] / b.step_s[1] - 1) for a, b in wrong)
    return f"{words}; the others are at most {_percent(apart)} apart."


def _spread(times_s: Sequence[float]) -> float:
    """Return the range of *times_s*, relative to their mean."""
    return (max(times_s) - min(times_s)) / fmean(times_s)


def _percent(error: float) -> str:
    return f"{error:.1%}".replace("%", " %")
