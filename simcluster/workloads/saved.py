"""What training has made of a model and an optimizer, by name, and the way back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Sharded:
    """*tensor* is one rank's part of a whole that is cut evenly along its first dimension, by `tensor_split(size)`."""

    tensor: Tensor


def model_state(model: nn.Module, parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """*parameters* and, by their names in the model, all that is not trained. Not copied."""
    trained = {parameter.data_ptr() for parameter in model.parameters() if parameter.requires_grad}
    rest = {name: value for name, value in model.state_dict().items() if value.data_ptr() not in trained}
    return {name: parameter.detach() for name, parameter in parameters.items()} | rest


def load_model(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Overwrites in place what *state* has."""
    mine = model.state_dict()
    with torch.no_grad():
        for name, value in state.items():
            mine[name].copy_(value)


def optimizer_state(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter], *, sharded: bool = False
) -> dict[str, Any]:
    """{"groups": the settings of each group, "state": by *parameters*' names}. Not copied.

    *sharded*: what has a parameter's shape is a part of it as the parameter is one of a whole vector.
    """
    groups = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    state: dict[str, dict[str, Any]] = {}
    for name, parameter in parameters.items():
        found = optimizer.state.get(parameter, {})
        if found:
            state[name] = {key: _part(value, parameter, sharded) for key, value in found.items()}
    return {"groups": groups, "state": state}


def load_optimizer(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter], state: Mapping[str, Any]
) -> None:
    """The way back. A parameter of which *state* says nothing is as before its first step."""
    for group, saved in zip(optimizer.param_groups, state["groups"], strict=True):
        for key, value in saved.items():
            group[key] = tuple(value) if isinstance(group.get(key), tuple) else value
    for name, parameter in parameters.items():
        if name in state["state"]:
            optimizer.state[parameter] = dict(state["state"][name])


def numbered(parameters: Sequence[nn.Parameter]) -> dict[str, nn.Parameter]:
    """*parameters* by their numbers, for optimizers of what has no names."""
    return {str(number): parameter for number, parameter in enumerate(parameters)}


def _part(value: Any, parameter: nn.Parameter, sharded: bool) -> Any:
    if sharded and isinstance(value, Tensor) and value.shape == parameter.shape:
        return Sharded(value)
    return value
