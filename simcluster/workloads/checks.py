"""Checks of a workload's parts. A class, an instance and a function are easily confused, so the
errors say what to write instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from simcluster.errors import Problem
from simcluster.workloads.data.samples import Batch
from simcluster.workloads.steps import Loss, loss_of, outputs_of, own_loss

LONGEST = 60

LEAST, NEAR = 1e-6, 1e-3
"""Limits for telling whether a loss is a sum or a mean: a loss below LEAST cannot show it, and a
ratio within NEAR of 2 shows a sum.
"""


def wrong_parts(model: Any, loss: Any, optimizer: Any, schedule: Any) -> list[Problem]:
    """Return a problem for each part that is not of the expected kind; it says what to write
    instead.
    """
    problems = []
    if isinstance(model, nn.Module):
        found = f"an instance of {type(model).__name__}"
        expected = f"a function that makes one, since each rank has its own: model={_making(model)}"
        problems.append(Problem("model", found, expected))
    elif not callable(model):
        problems.append(Problem("model", repr(model)[:LONGEST], "a function that returns an nn.Module, or its class"))
    if isinstance(loss, type):
        name = loss.__name__
        problems.append(Problem("loss", f"the class {name}", f"an instance of it, {name}(...), or a function"))
    elif loss is not None and not callable(loss):
        problems.append(
            Problem("loss", repr(loss)[:LONGEST], "loss(outputs, targets); or None, if the model computes it")
        )
    if isinstance(optimizer, torch.optim.Optimizer):
        name, rate = type(optimizer).__name__, optimizer.param_groups[0].get("lr")
        settings = "" if rate is None else f", lr={float(rate):g}"
        expected = (
            f"a function of the parameters: optimizer=lambda parameters: torch.optim.{name}(parameters{settings})"
        )
        problems.append(Problem("optimizer", f"an instance of {name}", expected))
    elif isinstance(optimizer, torch.optim.lr_scheduler.LRScheduler):
        expected = "a function that makes the optimizer; what makes the scheduler from it is `schedule`"
        problems.append(Problem("optimizer", f"a {type(optimizer).__name__} alone", expected))
    elif not callable(optimizer):
        expected = "a function from a list of parameters to a torch optimizer, such as sgd(0.1)"
        problems.append(Problem("optimizer", repr(optimizer)[:LONGEST], expected))
    if isinstance(schedule, torch.optim.lr_scheduler.LRScheduler):
        name = type(schedule).__name__
        expected = f"a function of the optimizer: schedule=lambda optimizer: {name}(optimizer, ...)"
        problems.append(Problem("schedule", f"an instance of {name}", expected))
    elif schedule is not None and not callable(schedule):
        problems.append(Problem("schedule", repr(schedule)[:LONGEST], "a function from an optimizer to a scheduler"))
    return problems


def made_loss(kind: type[nn.Module]) -> Any:
    """Return an instance of the loss class *kind*, or the class itself if its constructor needs
    arguments.
    """
    try:
        return kind()
    except TypeError:
        return kind


def _making(model: nn.Module) -> str:
    """Return code that makes a model like *model*, as far as its class and repr show how."""
    kind, code = type(model), repr(model)
    if kind.__module__.startswith("torch.nn.") and "\n" not in code and len(code) <= LONGEST:
        return f"lambda: nn.{code}"
    return f"lambda: {kind.__name__}(...), or the class {kind.__name__}"


def try_out(model: Callable[..., Any], loss: Loss, batch: Batch) -> bool:
    """Compute the loss of *batch* with *model*, once as it is and once with every sample counted
    twice.

    Return whether the loss is a sum over samples instead of a mean.

    Raise ValueError if the loss is not a scalar.

    The model's buffers may change, so it must not be used afterwards.
    """
    with torch.no_grad():
        outputs = outputs_of(model, batch.inputs)
        value = loss_of(loss, outputs, batch.targets)
        if loss is own_loss:
            some = Batch(*batch.each(lambda tensor: tensor[:2]))
            value, outputs = loss(outputs_of(model, some.inputs), some.targets), None
            twice = Batch(*some.each(_doubled))
            again = loss(outputs_of(model, twice.inputs), twice.targets)
        elif isinstance(outputs, Tensor) and outputs.dim() and len(outputs) == len(batch.targets):
            again = loss(_doubled(outputs), _doubled(batch.targets))
        else:
            return False
    # With every sample counted twice, a mean stays the same and a sum doubles.
    return abs(value.item()) > LEAST and abs(again.item() / value.item() - 2) < NEAR


def _doubled(tensor: Tensor) -> Tensor:
    return torch.cat([tensor, tensor])
