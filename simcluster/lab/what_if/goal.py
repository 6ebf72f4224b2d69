"""The goals to minimise: a time, an energy or a price, read off a sweep's table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from sys import float_info
from typing import TYPE_CHECKING

from simcluster.errors import Problem, UsageError, nearest
from simcluster.runs import words

if TYPE_CHECKING:
    import pandas as pd

TARGETS = {"time-to-accuracy": "accuracy", "time-to-loss": "loss"}
"""Goals with a target value -> the evaluated metric."""

COLUMNS = {"step-time": "elapsed_s", "run-time": "elapsed_s", "energy": "joules", "cost": "price_usd"}
SPELLINGS = "time-to-accuracy=0.9, time-to-loss=0.3, step-time, run-time, energy or cost"


@dataclass(frozen=True)
class Goal:
    """*name*, and the *target* if the goal is the time to reach one."""

    name: str
    target: float | None = None

    @property
    def learns(self) -> bool:
        """Whether the goal needs real numerics: a timing-only run reaches no accuracy."""
        return self.name in TARGETS

    @property
    def targets(self) -> Mapping[str, float] | None:
        """The target as a sweep's table takes it."""
        return {TARGETS[self.name]: self.target} if self.target is not None else None

    @property
    def phrase(self) -> str:
        """The goal in a sentence: 'a step', 'the energy of the run'."""
        if self.learns:
            return f"the time to {TARGETS[self.name]} {self.target:g}"
        of_run = {"run-time": "the time", "energy": "the energy", "cost": "the price"}
        return f"{of_run[self.name]} of the run" if self.name in of_run else "the time of a step"

    def measured(self, table: pd.DataFrame, steps: int | None) -> list[float | None]:
        """Return the goal for each row of *table*; None for a run that failed or missed it.

        *steps*: per rank; None if only the runs themselves know.
        """
        column = "time_to_target_s" if self.learns else COLUMNS[self.name]
        each = (table["steps"] if steps is None else steps) if self.name == "step-time" else 1
        done = (table[column] / each).where(table["status"] == "done")
        return [float(value) if value is not None and value == value else None for value in done]

    def value(self, number: float | None) -> str:
        """Format a measured value for people."""
        if self.name == "energy":
            return words.energy(number)
        return words.price(number) if self.name == "cost" else words.seconds(number)

    def missing(self) -> str:
        """Explain why a run may lack the goal, and what would help."""
        if self.name == "energy":
            return "every device's power_idle and power_busy in the topology (`simcluster list devices` has some)"
        if self.name == "cost":
            return "price_per_hour at every device of the topology: `price_per_hour: 0.5 USD/h`"
        return "a run that gets there: more steps, or a target that is easier to reach"


def read_goal(text: str) -> Goal:
    """Parse a goal. Raises UsageError."""
    name, separator, value = text.partition("=")
    name = name.strip()
    if name not in TARGETS and name not in COLUMNS:
        known = nearest(name, [*TARGETS, *COLUMNS])
        raise UsageError(Problem("--goal", repr(text), f"{SPELLINGS}: {known}"))
    if name in COLUMNS:
        if separator:
            raise UsageError(Problem("--goal", repr(text), f"{name} without a value: it has no target"))
        return Goal(name)
    try:
        target = float(value)
    except ValueError:
        raise UsageError(Problem("--goal", repr(text), f"{name}=NUMBER")) from None
    most, limit = (1.0, ", at most 1") if name == "time-to-accuracy" else (float_info.max, "")
    if not 0 < target <= most:
        raise UsageError(Problem("--goal", repr(text), f"a number above 0{limit}"))
    return Goal(name, target)
