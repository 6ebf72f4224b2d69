"""The trained state of a model and an optimizer, saved by name and loaded again."""

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
    """Return *parameters* and, by their names in the model, everything not trained. Not copied."""
    trained = {parameter.data_ptr() for parameter in model.parameters() if parameter.requires_grad}
    rest = {name: value for name, value in model.state_dict().items() if value.data_ptr() not in trained}
    return {name: parameter.detach() for name, parameter in parameters.items()} | rest


def load_model(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Overwrite the entries of *state* in place."""
    mine = model.state_dict()
    with torch.no_grad():
        for name, value in state.items():
            mine[name].copy_(value)


def optimizer_state(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter], *, sharded: bool = False
) -> dict[str, Any]:
    """Return {"groups": the settings of each group, "state": by the names of *parameters*}. Not copied.

    *sharded*: each parameter, and each entry with its shape, is one rank's part of a whole vector.
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
    """Load what `optimizer_state` returned. A parameter that *state* lacks is as before its first step."""
    for group, saved in zip(optimizer.param_groups, state["groups"], strict=True):
        for key, value in saved.items():
            group[key] = tuple(value) if isinstance(group.get(key), tuple) else value
    for name, parameter in parameters.items():
        if name in state["state"]:
            optimizer.state[parameter] = dict(state["state"][name])


def numbered(parameters: Sequence[nn.Parameter]) -> dict[str, nn.Parameter]:
    """Return *parameters* keyed by number, for optimizers of unnamed tensors."""
    return {str(number): parameter for number, parameter in enumerate(parameters)}


def _part(value: Any, parameter: nn.Parameter, sharded: bool) -> Any:
    if sharded and isinstance(value, Tensor) and value.shape == parameter.shape:
        return Sharded(value)
    return value
