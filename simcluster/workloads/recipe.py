"""The recipe of a training: settings that every workload has, shipped or not, under the same names."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from functools import wraps
from typing import Annotated, Any, Literal, ParamSpec, get_type_hints

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from simcluster.errors import Problem, UsageError, raise_all
from simcluster.workloads.learning_rate import Schedule, schedule_of
from simcluster.workloads.optimizers import NonNegativeFinite
from simcluster.workloads.precision import Precision
from simcluster.workloads.schedules import FACTOR, MakeSchedule
from simcluster.workloads.steps import trainable_of

Settings = ParamSpec("Settings")
Share = Annotated[float, Field(ge=0, lt=1)]
Scale = Literal["none", "linear", "sqrt"]
_FACTORS: Mapping[Scale, Callable[[int], float]] = {"none": lambda _: 1.0, "linear": float, "sqrt": math.sqrt}


@dataclass(frozen=True, kw_only=True)
class TrainingRecipe:
    """How any model is trained, beyond its own optimizer and data; the defaults change nothing.

    - *schedule*: of the learning rate, see LearningRateSchedule: a kind, or a mapping with a kind.
    - *weight_decay*: that of the optimizer; None keeps its own.
    - *dropout*: the share that all dropout modules of the model drop; None keeps their own.
    - *precision*: "bf16" computes a forward pass in bfloat16 where torch's autocast does, with
      weights, gradients, optimizer and loss in float32.
    - *scale*: the factor of the learning rate for the joined batch of k ranks: k for "linear" (Goyal
      et al. 2017), the root of k for "sqrt". The rate is then that of one rank's batch.
    - *weights*: a safetensors file with the initial weights.
    """

    schedule: Schedule = "constant"
    weight_decay: NonNegativeFinite | None = None
    dropout: Share | None = None
    precision: Precision = "f32"
    scale: Scale = "none"
    weights: str | None = None

    def of_model(self, make: Callable[[], nn.Module]) -> nn.Module:
        """Return the model that *make* makes, with the dropout of this recipe.

        Raise UsageError if it has no dropout module, or weights that bf16 does not apply to.
        """
        model = make()
        problems = []
        if self.dropout is not None:
            kinds = (_DropoutNd, nn.MultiheadAttention, nn.RNNBase)
            modules = [module for module in model.modules() if isinstance(module, kinds)]
            modules = [one for one in modules if getattr(one, "num_layers", 2) > 1]  # an LSTM drops between layers
            for module in modules:
                setattr(module, "p" if isinstance(module, _DropoutNd) else "dropout", self.dropout)
            if not modules:
                expected = "none, or a model with nn.Dropout where it should drop"
                problems.append(Problem("workload.dropout", f"{self.dropout:g}, and a model without dropout", expected))
        if self.precision == "bf16":
            others = {str(parameter.dtype) for _, parameter in trainable_of(model)} - {"torch.float32"}
            if others:
                found = f"bf16, and weights of {', '.join(sorted(others))}"
                problems.append(Problem("workload.precision", found, "f32, or weights of torch.float32"))
        raise_all(problems)
        return model

    def prepare(self, optimizer: torch.optim.Optimizer, batches: int, *, has_scheduler: bool) -> None:
        """Give *optimizer* this recipe's weight decay, and the rate for *batches* joined batches.

        Raise UsageError if it has no such setting, or came with a scheduler of the unscaled rate.
        """
        needed = {"weight_decay": "weight_decay", "scale": "lr", "schedule": "lr"}
        for setting, key in needed.items():
            wanted = getattr(self, setting) != DEFAULTS[setting]
            if wanted and any(key not in group for group in optimizer.param_groups):
                found = f"a {type(optimizer).__name__}, which has no {key}"
                raise UsageError(f"workload.{setting}", found, "an optimizer with it")
        if self.scale != "none" and has_scheduler:
            expected = "the scheduler apart from it: Workload(..., schedule=...)"
            raise UsageError("workload.scale", "an optimizer that comes with its scheduler", expected)
        for group in optimizer.param_groups:
            if self.weight_decay is not None:
                group["weight_decay"] = self.weight_decay
            if self.scale != "none":
                group[FACTOR] = _FACTORS[self.scale](batches)
                group["lr"] = group["lr"] * group[FACTOR]

    def make_schedule(self, steps: int | None) -> MakeSchedule | None:
        """Return the function that makes the scheduler for a run of *steps* steps, if the rate changes.

        None for *steps*: only costs are counted, which do not depend on the rate.
        """
        schedule = schedule_of(self.schedule)
        return None if schedule is None or steps is None else lambda optimizer: schedule.scheduler(optimizer, steps)

    def check_steps(self, steps: int) -> None:
        """Raise UsageError if the schedule does not fit a run of *steps* steps."""
        if (schedule := schedule_of(self.schedule)) is not None:
            schedule.check_fits(steps)


NO_RECIPE = TrainingRecipe()
DEFAULTS: Mapping[str, Any] = {each.name: each.default for each in fields(TrainingRecipe)}
"""Setting of a recipe -> its default."""


def with_recipe(function: Callable[Settings, Any]) -> Callable[..., Any]:
    """Return *function*, which returns a Workload, with the settings of a recipe as its own.

    Settings that *function* has already stay its own.
    """
    own = inspect.signature(function).parameters
    keyword = inspect.Parameter.KEYWORD_ONLY
    more = [
        parameter.replace(kind=keyword)
        for name, parameter in inspect.signature(TrainingRecipe).parameters.items()
        if name not in own
    ]

    @wraps(function)
    def made(*args: Any, **settings: Any) -> Any:
        given = {parameter.name: settings.pop(parameter.name) for parameter in more if parameter.name in settings}
        workload = function(*args, **settings)
        changed = getattr(workload, "with_recipe", None)  # the caller reports anything but a Workload
        return workload if changed is None else changed(given)

    rest = [parameter for parameter in own.values() if parameter.kind is inspect.Parameter.VAR_KEYWORD]
    before = [parameter for parameter in own.values() if parameter not in rest]
    made.__signature__ = inspect.Signature([*before, *more, *rest])  # type: ignore[attr-defined]
    hints = get_type_hints(TrainingRecipe, include_extras=True)
    made.__annotations__ = function.__annotations__ | {one.name: hints[one.name] for one in more}
    made.__recipe__ = tuple(parameter.name for parameter in more)  # type: ignore[attr-defined]
    return made


def is_of_recipe(function: object, name: str) -> bool:
    """Return whether `with_recipe` added the setting *name* to *function*."""
    return name in getattr(function, "__recipe__", ())


def told_apart(function: object, settings: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Return *settings* without the defaults of a recipe, which would replace the workload's own.

    *given*: the names of the settings that are no defaults.
    """
    return {key: value for key, value in settings.items() if key in given or not is_of_recipe(function, key)}
