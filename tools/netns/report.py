"""Writes docs/fidelity.md: a row for each scenario, how far off the simulator was, and how sure it said it was."""

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
MOST_USED_IDLE = 0.9
"""Devices are pauses, so hosts alone leave cores idle for more than a tenth of the time."""

NOTES = Path(__file__).with_name("notes.md")
"""What the numbers do not say: kept beside the code, so that a new table does not lose it."""


def report(conditions: Mapping[str, Kept]) -> str:
    """Return the whole page, with a table for each condition, by its name."""
    release = ".".join(platform.release().split(".")[:2])
    machine = f"{os.cpu_count()} cores for all hosts together, {platform.system()} {release}"
    blocks = [
        f"# Predicted against measured\n\nMade by `make fidelity` and `make fidelity-busy`; {machine}.",
        *(_condition(name, kept) for name, kept in conditions.items()),
        NOTES.read_text(encoding="utf-8").rstrip(),
    ]
    return "\n\n".join(blocks) + "\n"


def _condition(name: str, kept: Kept) -> str:
    outcomes = kept.outcomes()
    lines = [f"## {name}", "", *wrap(summary(outcomes), WIDTH), "", *wrap(machine_words(kept), WIDTH), ""]
    return "\n".join([*lines, *table(outcomes)])


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return errors, coverage and order in sentences."""
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
    """Return how busy the machine was meanwhile, and how many runs were made again."""
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


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """Rows of Markdown: predicted seconds with their interval, measured ones with their spread, how far off."""
    names = (
        *("network", "algorithm", "message", "predicted step", "interval", "measured", "spread", "off by", "inside"),
        "run off by",
    )
    rows = [f"| {' | '.join(names)} |", "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for outcome in outcomes:
        (step, real_step), (step_error, run_error) = outcome.step_s, outcome.errors
        low, high = (outcome.intervals[0][side] for side in ("low", "high"))
        rows.append(
            f"| {outcome.network} | {outcome.algorithm} | {outcome.size} | {step * 1e3:.1f} ms "
            f"| {low * 1e3:.1f} to {high * 1e3:.1f} | {real_step * 1e3:.1f} ms | {_spread(outcome.steps_s):.1%} "
            f"| {step_error:+.1%} | {covered([outcome], 0)} of {len(outcome.measured)} | {run_error:+.1%} |"
        )
    return rows


def covered(outcomes: Sequence[Outcome], which: int) -> int:
    """Count measured times inside their interval, of steps (0) or of runs (1)."""
    return sum(
        outcome.intervals[which]["low"] <= time_s <= outcome.intervals[which]["high"]
        for outcome in outcomes
        for time_s in (outcome.steps_s, outcome.runs_s)[which]
    )


def swapped(outcomes: Sequence[Outcome]) -> list[tuple[Outcome, Outcome]]:
    """Return the pairs of scenarios where the simulator says that the wrong one takes longer for a step."""
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
    """From the least to the greatest, relative to the mean."""
    return (max(times_s) - min(times_s)) / fmean(times_s)


def _percent(error: float) -> str:
    return f"{error:.1%}".replace("%", " %")
