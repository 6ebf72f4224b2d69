"""The learning rate of each step of an optimizer, in closed form: a function of the number of the
step alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, get_args

import torch
from pydantic import BaseModel, ConfigDict, Field, PlainValidator, PositiveInt, ValidationError, WithJsonSchema
from pydantic_core import InitErrorDetails, PydanticCustomError
from torch.optim.lr_scheduler import LambdaLR

from simcluster.errors import UsageError
from simcluster.spelling import nearest
from simcluster.workloads.optimizers import NonNegativeFinite

ScheduleKind = Literal["constant", "cosine", "linear", "step"]
KINDS: tuple[str, ...] = get_args(ScheduleKind)

_DECAYING = ("warmup_steps", "min_learning_rate", "steps")
_KEYS: Mapping[str, tuple[str, ...]] = {
    "constant": ("warmup_steps",),
    "cosine": _DECAYING,
    "linear": _DECAYING,
    "step": ("warmup_steps", "min_learning_rate", "gamma", "every"),
}
_NEEDED = {"step": ("gamma", "every")}


class LearningRateSchedule(BaseModel):
    """A warm-up to the peak, which is the optimizer's own learning rate, then a schedule of *kind*.

    With W = *warmup_steps*, step s (from 1) has s / W of the peak up to W. After that, with d = s - 1
    - W and the floor m = *min_learning_rate*: `constant` stays at the peak; `cosine` (Loshchilov and
    Hutter 2017) and `linear` fall from the peak to m over the T - W steps that are left, to m + (peak
    - m) (1 + cos(pi x)) / 2 and m + (peak - m) (1 - x) with x = d / (T - W); `step` is peak *gamma*
    ** (d // *every*), at least m. T is *steps*, by default the steps of the run.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: ScheduleKind = "constant"
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    min_learning_rate: NonNegativeFinite | None = None
    steps: PositiveInt | None = None
    gamma: Annotated[float, Field(gt=0, lt=1)] | None = None
    every: PositiveInt | None = None

    def share(self, step: int, steps: int, floor: float) -> float:
        """Return the share of the peak that step number *step* (from 1) of *steps* takes.

        *floor* is the share below which the rate does not decay.
        """
        if step <= self.warmup_steps:
            return step / self.warmup_steps
        decayed = step - 1 - self.warmup_steps
        if self.kind == "constant":
            return 1.0
        if self.gamma is not None and self.every is not None:
            return max(floor, self.gamma ** (decayed // self.every))
        left = max(0.0, 1 - decayed / max(1, steps - self.warmup_steps))
        return floor + (1 - floor) * ((1 - math.cos(math.pi * left)) / 2 if self.kind == "cosine" else left)

    def scheduler(self, optimizer: torch.optim.Optimizer, steps: int) -> LambdaLR:
        """Return torch's scheduler of *optimizer* with these rates, for a run of *steps* steps.

        Raise UsageError if a rate of the optimizer is below the floor.
        """
        rates = [float(group["lr"]) for group in optimizer.param_groups]
        least, lowest = self.min_learning_rate or 0.0, min(filter(None, rates), default=math.inf)  # 0 stays 0
        if least > lowest:
            expected = f"at most {lowest:g}, the learning rate that it falls from"
            raise UsageError("workload.schedule.min_learning_rate", f"{least:g}", expected)
        total, floors = self.steps or steps, [least / rate if rate else 0.0 for rate in rates]
        return LambdaLR(optimizer, [partial(self._after, steps=total, floor=floor) for floor in floors])

    def _after(self, done: int, steps: int, floor: float) -> float:
        return self.share(done + 1, steps, floor)

    def check_fits(self, steps: int) -> None:
        """Raise UsageError if the warm-up is longer than a run of *steps* steps or than the schedule."""
        most = min(steps, self.steps or steps)
        if self.warmup_steps > most:
            expected = f"at most {most}, the steps of the {'run' if most == steps else 'schedule'}"
            raise UsageError("workload.schedule.warmup_steps", str(self.warmup_steps), expected)


def completed(given: Any) -> str | dict[str, Any]:
    """Check the value of a setting `schedule`; return it as plain values that a file can hold.

    Raise a ValidationError that lists all problems if it is not a kind or a mapping with one.
    """
    if isinstance(given, LearningRateSchedule):
        given = given.model_dump(exclude_none=True)
    block = {"kind": given} if isinstance(given, str) else given
    if not isinstance(block, Mapping) or "kind" not in block:
        raise _error([((), f"a kind ({', '.join(KINDS)}), or a mapping with a kind", given)])
    kind = block["kind"]
    if kind not in KINDS:
        place = () if isinstance(given, str) else ("kind",)
        raise _error([(place, f"a kind of schedule: {nearest(str(kind), KINDS)}", kind)])
    known = _KEYS[kind]
    wrong: list[tuple[tuple[str, ...], str, Any]] = [
        ((str(key),), f"a key of {kind}: {nearest(str(key), known)}", value)
        for key, value in block.items()
        if key not in ("kind", *known) and value is not None
    ]
    missing = [key for key in _NEEDED.get(kind, ()) if block.get(key) is None]
    wrong += [((), f"a mapping with {', '.join(missing)}, which {kind} needs", given)] if missing else []
    if wrong:
        raise _error(wrong)
    found = LearningRateSchedule.model_validate(dict(block), strict=True).model_dump(exclude_none=True)
    return str(kind) if found == {"kind": kind, "warmup_steps": 0} else found


def schedule_of(value: str | Mapping[str, Any]) -> LearningRateSchedule | None:
    """Return the schedule of a setting that `completed` returned; None for a rate that stays."""
    return (
        None if value == "constant" else LearningRateSchedule(**({"kind": value} if isinstance(value, str) else value))
    )


def _error(details: Sequence[tuple[tuple[str, ...], str, Any]]) -> ValidationError:
    lines = [
        InitErrorDetails(type=PydanticCustomError("schedule", message.replace("{", "(")), loc=where, input=value)
        for where, message, value in details
    ]
    return ValidationError.from_exception_data("schedule", lines)


_SCHEMA: dict[str, Any] = {
    "anyOf": [{"enum": list(KINDS)}, LearningRateSchedule.model_json_schema() | {"required": ["kind"]}]
}

Schedule = Annotated[str | Mapping[str, Any], PlainValidator(completed), WithJsonSchema(_SCHEMA)]
"""The type of the setting `schedule`: `cosine`, or `{kind: cosine, warmup_steps: 100, ...}`."""
