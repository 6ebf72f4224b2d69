"""The usual optimizers in the form that a workload takes: a function that makes a torch optimizer
from a list of parameters.

Any function that returns a torch optimizer works, such as `lambda parameters: torch.optim.RMSprop(...)`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import nn
from torch.optim import Optimizer
from torch.optim import optimizer as torch_optimizer

from simcluster.errors import Problem, UsageError, raise_all

_GLOBAL_HOOKS = torch_optimizer._global_optimizer_pre_hooks, torch_optimizer._global_optimizer_post_hooks

PositiveFinite = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegativeFinite = Annotated[float, Field(ge=0, allow_inf_nan=False)]
MakeOptimizer = Callable[[list[nn.Parameter]], Optimizer]


def _bare(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return an optimizer's *step* without torch's wrappers.

    Some wrappers import torch's compiler, which takes 1.3 s at the start of every command. Another
    one labels each step for the profiler, which takes as long as a small model's step. The wrapped
    step still runs where it makes a difference: if there are hooks, while torch profiles, and while
    operators are counted.
    """
    bare = torch.no_grad()(inspect.unwrap(step))
    labelled = Optimizer.profile_hook_step(bare)

    def step_of(self: Optimizer, closure: Callable[[], float] | None = None) -> float | None:
        hooks = self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks, *_GLOBAL_HOOKS
        is_seen = torch._C._len_torch_dispatch_stack() or torch._C._autograd._profiler_enabled() or any(hooks)
        return (labelled if is_seen else bare)(self, closure)  # type: ignore[no-any-return]

    step_of.hooked = True  # type: ignore[attr-defined]  # keeps torch from wrapping the step again
    return step_of


class SGD(torch.optim.SGD):
    """torch's SGD with a step that has no wrappers."""

    step = _bare(torch.optim.SGD.step)
    add_param_group = inspect.unwrap(Optimizer.add_param_group)


class AdamW(torch.optim.AdamW):
    """torch's AdamW with a step that has no wrappers."""

    step = _bare(torch.optim.AdamW.step)
    add_param_group = inspect.unwrap(Optimizer.add_param_group)


# foreach=False runs one kernel per parameter, in a fixed order. It is also faster for
# small models.


def sgd(learning_rate: float, momentum: float = 0.0, weight_decay: float = 0.0) -> MakeOptimizer:
    """Return a factory of optimizers for stochastic gradient descent. Raise UsageError for settings
    out of range.
    """
    _check(learning_rate=learning_rate, momentum=momentum, weight_decay=weight_decay)
    return partial(SGD, lr=learning_rate, momentum=momentum, weight_decay=weight_decay, foreach=False)


def adamw(learning_rate: float, weight_decay: float = 0.01) -> MakeOptimizer:
    """Return a factory of AdamW optimizers (Loshchilov and Hutter 2019).

    Raise UsageError for settings out of range.
    """
    _check(learning_rate=learning_rate, weight_decay=weight_decay)
    return partial(AdamW, lr=learning_rate, weight_decay=weight_decay, foreach=False)


def named_optimizer(name: Literal["sgd", "adamw"], learning_rate: float, momentum: float) -> MakeOptimizer:
    """Return a factory of optimizers of the kind *name*.

    Raise UsageError for settings that are out of range or contradict each other.
    """
    if name == "sgd":
        return sgd(learning_rate, momentum)
    if momentum:
        raise UsageError("momentum", repr(momentum), "0 with adamw, which has its own")
    return adamw(learning_rate)


def learning_rate_of(optimizer: Optimizer) -> float | None:
    """Return the learning rate of the first parameter group, or None if the optimizer has no
    learning rate.
    """
    rate = optimizer.param_groups[0].get("lr") if optimizer.param_groups else None
    return None if rate is None else float(rate)


def explain_overflow(error: RuntimeError, optimizer: Optimizer, parameters: Sequence[nn.Parameter], step: int) -> None:
    """If *error* says that a factor exceeds the range of the parameters' dtype, raise an
    OverflowError that names the setting and the step.
    """
    if "without overflow" not in str(error):
        return
    most = min(torch.finfo(parameter.dtype).max for parameter in parameters)
    given = [(key, value) for group in optimizer.param_groups for key, value in group.items() if _exceeds(value, most)]
    named = ", ".join({f"{'learning_rate' if key == 'lr' else key} = {float(value):g}": None for key, value in given})
    named = named or f"a product with learning_rate = {learning_rate_of(optimizer)}"
    raise OverflowError(f"{named} at step {step} of the optimizer; the weights hold at most {most:.2g}") from error


def _exceeds(value: object, most: float) -> bool:
    return isinstance(value, (int, float, torch.Tensor)) and abs(float(value)) > most


def _check(learning_rate: float, weight_decay: float, momentum: float = 0.0) -> None:
    problems = []
    if not (math.isfinite(learning_rate) and learning_rate > 0):
        problems.append(Problem("learning_rate", repr(learning_rate), "a finite number above 0"))
    if not 0 <= momentum < 1:
        problems.append(Problem("momentum", repr(momentum), "a number from 0 to below 1"))
    if not (math.isfinite(weight_decay) and weight_decay >= 0):
        problems.append(Problem("weight_decay", repr(weight_decay), "a finite number, 0 or above"))
    raise_all(problems)
