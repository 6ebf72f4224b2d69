"""Puts outcomes into docs/fidelity.md: a row a scenario, how far off the simulator was, and on what machine.

This file knows numbers and Markdown. It must not measure anything.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from statistics import median

from tests.netns.fidelity import Outcome

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
            f"Of {len(outcomes)} scenarios the median error is {_percent(median(steps))} for the time of a step and",
            f"{_percent(median(runs))} for the whole run; the worst are {_percent(max(steps))} and "
            f"{_percent(max(runs))}. {_order(outcomes)}",
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
    return [
        (a, b)
        for index, a in enumerate(outcomes)
        for b in outcomes[index + 1 :]
        if (a.step_s[0] - b.step_s[0]) * (a.step_s[1] - b.step_s[1]) < 0
    ]


def _order(outcomes: Sequence[Outcome]) -> str:
    pairs, wrong = len(outcomes) * (len(outcomes) - 1) // 2, swapped(outcomes)
    if not wrong:
        return f"Which of two scenarios is slower is right for all {pairs} pairs."
    named = "; ".join(f"{_name(a)} and {_name(b)}" for a, b in wrong)
    return f"Which of two scenarios is slower is right for {pairs - len(wrong)} of {pairs} pairs, not for {named}."


def _name(outcome: Outcome) -> str:
    return f"{outcome.algorithm} on {outcome.network} with {outcome.size}"


def _percent(error: float) -> str:
    return f"{error:.1%}".replace("%", " %")
