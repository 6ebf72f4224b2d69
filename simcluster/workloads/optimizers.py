"""The usual optimizers, as a workload takes them: a function from parameters to a torch optimizer.

Any function that returns a torch optimizer works, such as `lambda parameters: torch.optim.RMSprop(...)`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias

import torch
from pydantic import Field
from torch import nn
from torch.optim import Optimizer
from torch.optim import optimizer as torch_optimizer

from simcluster.errors import Problem, UsageError, raise_all

_GLOBAL_HOOKS = torch_optimizer._global_optimizer_pre_hooks, torch_optimizer._global_optimizer_post_hooks

PositiveFinite = Annotated[float, Field(gt=0, allow_inf_nan=False)]
MakeOptimizer: TypeAlias = Callable[[list[nn.Parameter]], Optimizer]


def _bare(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return *step*, an optimizer's, without torch's wrappers.

    Some import its compiler, which takes 1.3 s at the start of every command; one labels each step for its profiler,
    which costs as much as the step of a small model. The label stays if there are hooks, and wherever it is seen: while
    torch profiles, or operators are counted, as they are with any optimizer of torch's own.
    """
    bare = torch.no_grad()(inspect.unwrap(step))
    labelled = Optimizer.profile_hook_step(bare)

    def step_of(self: Optimizer, closure: Callable[[], float] | None = None) -> float | None:
        hooks = self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks, *_GLOBAL_HOOKS
        is_seen = torch._C._len_torch_dispatch_stack() or torch._C._autograd._profiler_enabled() or any(hooks)
        return (labelled if is_seen else bare)(self, closure)  # type: ignore[no-any-return]

    step_of.hooked = True  # type: ignore[attr-defined]  # else torch wraps it
    return step_of


class SGD(torch.optim.SGD):
    """torch's SGD with a bare step."""

    step = _bare(torch.optim.SGD.step)
    add_param_group = inspect.unwrap(Optimizer.add_param_group)


class AdamW(torch.optim.AdamW):
    """torch's AdamW with a bare step."""

    step = _bare(torch.optim.AdamW.step)
    add_param_group = inspect.unwrap(Optimizer.add_param_group)


# foreach=False: one kernel per parameter, in order. For small models it is also faster.


def sgd(learning_rate: float, momentum: float = 0.0, weight_decay: float = 0.0) -> MakeOptimizer:
    """Make stochastic gradient descent. Raises UsageError for settings out of range."""
    _check(learning_rate=learning_rate, momentum=momentum, weight_decay=weight_decay)
    return partial(SGD, lr=learning_rate, momentum=momentum, weight_decay=weight_decay, foreach=False)


def adamw(learning_rate: float, weight_decay: float = 0.01) -> MakeOptimizer:
    """Make AdamW (Loshchilov and Hutter 2019). Raises UsageError for settings out of range."""
    _check(learning_rate=learning_rate, weight_decay=weight_decay)
    return partial(AdamW, lr=learning_rate, weight_decay=weight_decay, foreach=False)


def named_optimizer(name: Literal["sgd", "adamw"], learning_rate: float, momentum: float) -> MakeOptimizer:
    """Return the optimizer of a workload's settings. Raises UsageError for settings that contradict each other."""
    if name == "sgd":
        return sgd(learning_rate, momentum)
    if momentum:
        raise UsageError(Problem("momentum", repr(momentum), "0 with adamw, which has its own"))
    return adamw(learning_rate)


def learning_rate_of(optimizer: Optimizer) -> float | None:
    """Return the rate of the first group of parameters; None if the optimizer has none."""
    rate = optimizer.param_groups[0].get("lr") if optimizer.param_groups else None
    return None if rate is None else float(rate)


def explain_overflow(error: RuntimeError, optimizer: Optimizer, parameters: Sequence[nn.Parameter], step: int) -> None:
    """If *error* says that a factor is beyond the kind of *parameters*, raise OverflowError with setting and step."""
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
