"""Puts outcomes into docs/fidelity.md: a row a scenario, how far off the simulator was, and on what machine.

This file knows numbers and Markdown. It must not measure anything.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import date
from itertools import combinations
from pathlib import Path
from statistics import median
from textwrap import wrap

from tests.netns.fidelity import Outcome

WIDTH = 120
NOTES = Path(__file__).with_name("notes.md")
"""What the numbers do not say: kept beside the code, so that a new table does not lose it."""


def report(outcomes: Sequence[Outcome], day: date, took_s: float) -> str:
    """The whole page."""
    steps, runs = ([abs(outcome.errors[which]) for outcome in outcomes] for which in (0, 1))
    release = ".".join(platform.release().split(".")[:2])
    machine = f"{os.cpu_count()} cores for all hosts together, {platform.system()} {release}"
    return "\n".join(
        [
            "# Predicted against measured",
            "",
            f"Made by `make fidelity` on {day.isoformat()} in {took_s / 60:.0f} minutes; {machine}.",
            "",
            *wrap(
                f"Of {len(outcomes)} scenarios the median error is {_percent(median(steps))} for the time of a step "
                f"and {_percent(median(runs))} for the whole run; the worst are {_percent(max(steps))} and "
                f"{_percent(max(runs))}. {_order(outcomes)}",
                WIDTH,
            ),
            "",
            *table(outcomes),
            "",
            NOTES.read_text(encoding="utf-8").rstrip(),
            "",
        ]
    )


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """Rows of Markdown: predicted and measured seconds, and by how much the prediction is off."""
    rows = [
        "| network | algorithm | message | step, predicted | measured | off by | run, predicted | measured | off by |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for outcome in outcomes:
        (step, real_step), (run, real_run) = outcome.step_s, outcome.run_s
        step_error, run_error = outcome.errors
        rows.append(
            f"| {outcome.network} | {outcome.algorithm} | {outcome.size} "
            f"| {step * 1e3:.1f} ms | {real_step * 1e3:.1f} ms | {step_error:+.1%} "
            f"| {run:.2f} s | {real_run:.2f} s | {run_error:+.1%} |"
        )
    return rows


def swapped(outcomes: Sequence[Outcome]) -> list[tuple[Outcome, Outcome]]:
    """Pairs of scenarios of which the simulator says that the wrong one takes longer a step."""
    return [(a, b) for a, b in combinations(outcomes, 2) if _slower(a, b, 0) != _slower(a, b, 1)]


def _slower(a: Outcome, b: Outcome, which: int) -> bool:
    return a.step_s[which] > b.step_s[which]


def _order(outcomes: Sequence[Outcome]) -> str:
    wrong = swapped(outcomes)
    pairs = len(outcomes) * (len(outcomes) - 1) // 2
    words = f"Which of two scenarios takes longer a step is predicted right for {pairs - len(wrong)} of {pairs} pairs"
    if not wrong:
        return f"{words}."
    apart = max(abs(a.step_s[1] / b.step_s[1] - 1) for a, b in wrong)
    return f"{words}; the others are at most {_percent(apart)} apart."


def _percent(error: float) -> str:
    return f"{error:.1%}".replace("%", " %")
