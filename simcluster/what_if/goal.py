"""What is to become less: a time, an energy or a price, as a goal that can be read off a sweep's table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simcluster.errors import Problem, UsageError, nearest
from simcluster.runs import words

if TYPE_CHECKING:
    import pandas as pd

TARGETS = {"time-to-accuracy": "accuracy", "time-to-loss": "loss"}
"""Goals with a value to be reached -> what is evaluated."""

COLUMNS = {"step-time": "elapsed_s", "run-time": "elapsed_s", "energy": "joules", "cost": "price_usd"}
SPELLINGS = "time-to-accuracy=0.9, time-to-loss=0.3, step-time, run-time, energy or cost"


@dataclass(frozen=True)
class Goal:
    """*name*, and for a time to something the *target*."""

    name: str
    target: float | None = None

    @property
    def learns(self) -> bool:
        """Whether it can be told only by computing: timing alone reaches no accuracy."""
        return self.name in TARGETS

    @property
    def is_time_of_run(self) -> bool:
        """Whether it is the time of a run, or of its steps, which is the same except for a factor."""
        return self.name in ("step-time", "run-time")

    @property
    def targets(self) -> Mapping[str, float] | None:
        """As a sweep's table takes it."""
        return {TARGETS[self.name]: self.target} if self.target is not None else None

    @property
    def phrase(self) -> str:
        """The goal in a sentence: 'a step', 'the energy of the run'."""
        if self.learns:
            return f"the time to {TARGETS[self.name]} {self.target:g}"
        return {
            "step-time": "the time of a step",
            "run-time": "the time of the run",
            "energy": "the energy of the run",
            "cost": "the price of the run",
        }[self.name]

    def measured(self, table: pd.DataFrame, steps: int) -> list[float | None]:
        """Of each row of a sweep's *table*; None for a run that failed or did not get there. *steps* of a rank."""
        column = "time_to_target_s" if self.learns else COLUMNS[self.name]
        each = steps if self.name == "step-time" else 1
        done = table["status"] == "done"
        return [
            float(value) / each if good and value is not None and value == value else None
            for good, value in zip(done, table[column], strict=True)
        ]

    def value(self, number: float | None) -> str:
        """A measured value for people."""
        if self.name == "energy":
            return words.energy(number)
        return words.price(number) if self.name == "cost" else words.seconds(number)

    def missing(self) -> str:
        """Why a run as it is may not have it, and what would help."""
        if self.name == "energy":
            return "every device's power_idle and power_busy in the topology (`simcluster list devices` has some)"
        if self.name == "cost":
            return "price_per_hour at every device of the topology: `price_per_hour: 0.5 USD/h`"
        return "a run that gets there: more steps, or a target that is easier to reach"


def read_goal(text: str) -> Goal:
    """The goal that *text* means. Raises UsageError."""
    name, separator, value = text.partition("=")
    name = name.strip()
    if name not in TARGETS and name not in COLUMNS:
        known = nearest(name, [*TARGETS, *COLUMNS])
        raise UsageError(Problem("--goal", repr(text), f"{SPELLINGS}: {known}"))
    if name in COLUMNS:
        if separator:
            raise UsageError(Problem("--goal", repr(text), f"{name} alone, it has no value to reach"))
        return Goal(name)
    try:
        target = float(value)
    except ValueError:
        raise UsageError(Problem("--goal", repr(text), f"{name}=NUMBER")) from None
    fits = 0 < target <= 1 if name == "time-to-accuracy" else 0 < target < float("inf")
    if not fits:
        limit = "above 0, at most 1" if name == "time-to-accuracy" else "above 0"
        raise UsageError(Problem("--goal", repr(text), f"a number {limit}"))
    return Goal(name, target)
