"""Functions that save the state of a model and an optimizer by name, and load it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from simcluster.workloads.schedules import FACTOR, load_schedule, rescale, schedule_state


@dataclass(frozen=True)
class ShardedTensor:
    """One rank's part of a whole *tensor*, which `tensor_split(size)` has split evenly along its
    first dimension.
    """

    tensor: Tensor


def training_state(
    model: nn.Module, names: Sequence[str], parameters: Sequence[nn.Parameter], optimizer: torch.optim.Optimizer
) -> dict[str, Tensor]:
    """Return all tensors that training changes, under the names "model.<name>" and
    "optimizer.<parameter>.<name>". Tensors are not copied.
    """
    state = {f"model.{name}": value for name, value in model.state_dict().items()}
    for name, parameter in zip(names, parameters, strict=False):
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, (Tensor, int, float)):
                state[f"optimizer.{name}.{key}"] = torch.as_tensor(value)
    return state


def state_tensors(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)]


def untrained_state(model: nn.Module) -> dict[str, Tensor]:
    """Return name -> tensor for the entries of the model's state that are not trained: frozen
    parameters and persistent buffers. Nothing is copied.
    """
    trained = {parameter.data_ptr() for parameter in model.parameters() if parameter.requires_grad}
    tensors = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    return {name: value for name, value in tensors.items() if value.data_ptr() not in trained}


def model_state(model: nn.Module, parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """Return name -> tensor for *parameters* and the `untrained_state`. Nothing is copied."""
    return {name: parameter.detach() for name, parameter in parameters.items()} | untrained_state(model)


def load_model(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Overwrite, in place, those entries of *model*'s state that *state* contains."""
    mine = model.state_dict()
    with torch.no_grad():
        for name, value in state.items():
            mine[name].copy_(value)


def optimizer_state(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter], *, sharded: bool = False
) -> dict[str, Any]:
    """Return {"groups": list of the settings of each group, "state": {name of a parameter: its
    state}}.

    If the optimizer has a scheduler, "schedule" is the scheduler's state. Nothing is copied.
    *sharded*: whether each parameter, and each tensor in its state that has the parameter's shape,
    is one rank's part of a whole vector.
    """

    def part(value: Any, parameter: nn.Parameter) -> Any:
        is_part = sharded and isinstance(value, Tensor) and value.shape == parameter.shape
        return ShardedTensor(value) if is_part else value

    groups = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    found = {name: (parameter, optimizer.state.get(parameter)) for name, parameter in parameters.items()}
    state = {
        name: {key: part(value, parameter) for key, value in entries.items()}
        for name, (parameter, entries) in found.items()
        if entries
    }
    schedule = schedule_state(optimizer)
    return {"groups": groups, "state": state} | ({} if schedule is None else {"schedule": schedule})


def load_optimizer(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter], state: Mapping[str, Any]
) -> None:
    """Load *state*, which `optimizer_state` returned.

    The state of a parameter that *state* lacks is not changed. Rates scaled for the joined batch are
    scaled for this run's.
    """
    factors = [group.get(FACTOR) for group in optimizer.param_groups]
    for group, saved in zip(optimizer.param_groups, state["groups"], strict=True):
        for key, value in saved.items():
            group[key] = tuple(value) if isinstance(group.get(key), tuple) else value
    if "schedule" in state:
        load_schedule(optimizer, state["schedule"])
    rescale(optimizer, factors)
    for name, parameter in parameters.items():
        if name in state["state"]:
            optimizer.state[parameter] = {key: _beside(parameter, part) for key, part in state["state"][name].items()}


def _beside(parameter: nn.Parameter, value: Any) -> Any:
    """Return *value* on the device of *parameter*; a scalar, such as a step count, stays on the host."""
    return value.to(parameter.device) if isinstance(value, Tensor) and value.dim() else value
