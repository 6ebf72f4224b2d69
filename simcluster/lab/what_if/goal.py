"""The goals to minimise: a time, an energy or a price, as read from a sweep's table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from sys import float_info
from typing import TYPE_CHECKING, Any

from simcluster.errors import UsageError
from simcluster.runs import words
from simcluster.spelling import nearest

if TYPE_CHECKING:
    import pandas as pd

TARGETS = {"time-to-accuracy": "accuracy", "time-to-loss": "loss"}
"""Name of a goal with a target value -> the evaluated metric."""

COLUMNS = {"step-time": "elapsed_s", "run-time": "elapsed_s", "energy": "joules", "cost": "price_usd"}
SPELLINGS = "time-to-accuracy=0.9, time-to-loss=0.3, step-time, run-time, energy or cost"


@dataclass(frozen=True)
class Goal:
    """A goal called *name*; *target* is the value to reach if the goal is the time until then."""

    name: str
    target: float | None = None

    @property
    def learns(self) -> bool:
        """Whether the goal needs real numerics, since a run without them reaches no accuracy."""
        return self.name in TARGETS

    @property
    def targets(self) -> Mapping[str, float] | None:
        """The target in the form that a sweep's table takes; None if the goal has none."""
        return {TARGETS[self.name]: self.target} if self.target is not None else None

    @property
    def phrase(self) -> str:
        """The goal as part of a sentence, such as 'the energy of the run'."""
        if self.learns:
            return f"the time to {TARGETS[self.name]} {self.target:g}"
        of_run = {"run-time": "the time", "energy": "the energy", "cost": "the price"}
        return f"{of_run[self.name]} of the run" if self.name in of_run else "the time of a step"

    def measured(self, table: pd.DataFrame, steps: int | None) -> list[float | None]:
        """Return the goal's value for each row of *table*; None for failed runs and missed targets.

        *steps* is the number of steps per rank; None if it differs between runs, as it does with a
        time limit.
        """
        column = "time_to_target_s" if self.learns else COLUMNS[self.name]
        each: Any = 1
        if self.name == "step-time":
            each = table["steps"] if steps is None else steps
        done = (table[column] / each).where(table["status"] == "done")
        return [float(value) if value is not None and value == value else None for value in done]

    def value(self, number: float | None) -> str:
        """Return the measured value *number* as text with its unit."""
        return {"energy": words.energy, "cost": words.price}.get(self.name, words.seconds)(number)

    def missing(self) -> str:
        """Describe what a run needs in order to have a value for the goal."""
        numbers = {
            "energy": "every device's power_idle and power_busy in the topology (`simcluster list devices` has some)",
            "cost": "price_per_hour at every device of the topology: `price_per_hour: 0.5 USD/h`",
        }
        return numbers.get(self.name, "a run that gets there: more steps, or a target that is easier to reach")


def read_goal(text: str) -> Goal:
    """Return the goal that *text* names, such as `time-to-loss=0.3`.

    Raise UsageError if *text* is invalid.
    """
    name, separator, value = text.partition("=")
    name = name.strip()
    if name not in TARGETS and name not in COLUMNS:
        known = nearest(name, [*TARGETS, *COLUMNS])
        raise UsageError("--goal", repr(text), f"{SPELLINGS}: {known}")
    if name in COLUMNS:
        if separator:
            raise UsageError("--goal", repr(text), f"{name} without a value: it has no target")
        return Goal(name)
    try:
        target = float(value)
    except ValueError:
        raise UsageError("--goal", repr(text), f"{name}=NUMBER") from None
    most, limit = (1.0, ", at most 1") if name == "time-to-accuracy" else (float_info.max, "")
    if not 0 < target <= most:
        raise UsageError("--goal", repr(text), f"a number above 0{limit}")
    return Goal(name, target)
