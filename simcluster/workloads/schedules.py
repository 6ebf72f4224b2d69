"""Learning-rate schedules: torch's schedulers, stepped once after each step of their optimizer.

A scheduler belongs to its optimizer. A part that trains with a separate optimizer, such as a
pipeline stage or a shard, has a separate scheduler, which steps together with the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from simcluster.errors import UsageError
from simcluster.workloads.optimizers import MakeOptimizer

Made = torch.optim.Optimizer | tuple[torch.optim.Optimizer, LRScheduler]
MakeSchedule = Callable[[torch.optim.Optimizer], LRScheduler]

_SCHEDULER = "_simcluster_scheduler"
_TAKEN = "simcluster_batches_taken"
FACTOR = "simcluster_scale"
"""The setting of a group of parameters that has the factor of its rate for the joined batch."""


def with_schedule(
    make: Callable[[list[nn.Parameter]], Made],
    schedule: MakeSchedule | None = None,
    prepare: Callable[..., object] = lambda optimizer, *, has_scheduler: None,
) -> MakeOptimizer:
    """Return a factory of the optimizers that *make* returns, each with its scheduler if there is
    one. The scheduler is stepped after each step of the optimizer.

    The scheduler comes from *schedule*, or from *make* itself if it returns (optimizer, scheduler).
    *prepare* changes the settings of an optimizer before *schedule* reads its rate.
    The factory raises UsageError if *make* returns neither an optimizer nor (optimizer, scheduler),
    if there are two schedulers, or if the scheduler is unsuitable: not one of torch's, one that
    needs a held-out loss, or one of another optimizer.
    """

    def made(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        found: Any = make(parameters)
        optimizer, scheduler = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
        if isinstance(optimizer, LRScheduler):
            found = f"a {type(optimizer).__name__} alone"
            raise UsageError("optimizer", found, "the optimizer with it: `return optimizer, scheduler`")
        if not isinstance(optimizer, torch.optim.Optimizer):
            what = "None" if optimizer is None else f"a {type(optimizer).__name__}"
            expected = "a torch optimizer, or (optimizer, scheduler)"
            raise UsageError("optimizer", f"a function that returns {what}", expected)
        prepare(optimizer, has_scheduler=scheduler is not None)
        if schedule is not None:
            if scheduler is not None:
                expected = "one of the two: this, or the scheduler that the optimizer's function returns"
                raise UsageError("schedule", "a second schedule", expected)
            scheduler = schedule(optimizer)
        if scheduler is not None:
            _check(scheduler, optimizer)
            setattr(optimizer, _SCHEDULER, scheduler)
        return optimizer

    return made


def _check(scheduler: Any, optimizer: torch.optim.Optimizer) -> None:
    if isinstance(scheduler, ReduceLROnPlateau):
        found = "ReduceLROnPlateau, which waits for a held-out loss that no rank has while it trains"
        raise UsageError("schedule", found, "a scheduler that only counts steps")
    if not isinstance(scheduler, LRScheduler):
        raise UsageError("schedule", f"a {type(scheduler).__name__}", "a torch learning-rate scheduler")
    if scheduler.optimizer is not optimizer:
        raise UsageError("schedule", "a scheduler of another optimizer", "one of the optimizer with it")


def scheduler_of(optimizer: torch.optim.Optimizer) -> LRScheduler | None:
    """Return the scheduler of *optimizer*, or None if it has none."""
    found = getattr(optimizer, _SCHEDULER, None)
    return found if isinstance(found, LRScheduler) else None


def advance(optimizer: torch.optim.Optimizer, batches: int = 1, of: int = 1) -> None:
    """Step the scheduler of *optimizer*, if it has one. Call this after each step of the
    optimizer.

    If the step took *batches* of the *of* batches of a round, which has one of each rank, the scheduler
    is stepped when a round is complete: a schedule counts the batches of one rank, not those of all.
    """
    if (scheduler := scheduler_of(optimizer)) is None:
        return
    taken = getattr(scheduler, _TAKEN, 0) + batches
    for _ in range(taken // of):
        scheduler.step()
    if of > 1:  # kept in the scheduler, so that checkpoints have it
        setattr(scheduler, _TAKEN, taken % of)


def schedule_state(optimizer: torch.optim.Optimizer) -> dict[str, Any] | None:
    """Return the state of *optimizer*'s scheduler, or None if there is no scheduler.

    Values that a checkpoint cannot hold, such as functions, are left out: a new scheduler is made
    with them.
    """
    scheduler = scheduler_of(optimizer)
    return None if scheduler is None else _plain(scheduler.state_dict())


def load_schedule(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load *state*, which `schedule_state` returned, into the scheduler of *optimizer*."""
    if (scheduler := scheduler_of(optimizer)) is not None:
        scheduler.load_state_dict(_plain(state))


def rescale(optimizer: torch.optim.Optimizer, factors: Sequence[float | None]) -> None:
    """Give the groups of *optimizer*, perhaps loaded from a run on other ranks, the rates for *factors*."""
    scheduler = scheduler_of(optimizer)
    for number, (group, factor) in enumerate(zip(optimizer.param_groups, factors, strict=True)):
        if factor is None or group.get(FACTOR, factor) == factor:
            continue
        more = factor / group[FACTOR]
        group.update({key: group[key] * more for key in ("lr", "initial_lr") if key in group}, **{FACTOR: factor})
        if scheduler is not None:
            scheduler.base_lrs[number] *= more


def take_over(optimizer: torch.optim.Optimizer, before: torch.optim.Optimizer) -> None:
    """Give *optimizer*, which has more parameters, the state and the schedule of *before*."""
    optimizer.state.update(before.state)
    if (state := schedule_state(before)) is not None:
        load_schedule(optimizer, state)
        for mine, old in zip(optimizer.param_groups, before.param_groups, strict=True):
            mine.update({key: value for key, value in old.items() if key != "params"})


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of those entries of *values* that a checkpoint can hold: numbers, strings,
    tensors, and lists and dicts of these.
    """
    return {key: _copied(value) for key, value in values.items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    if type(value) is list:
        return all(_is_plain(part) for part in value)
    return value is None or isinstance(value, (bool, int, float, str, Tensor)) or type(value) is dict


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, list):
        return [_copied(part) for part in value]
    return _plain(value) if isinstance(value, dict) else value
