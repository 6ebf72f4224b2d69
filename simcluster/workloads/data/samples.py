"""Data in memory: inputs and targets as tensors, and the batches taken from them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor

HASHED_BYTES = 4 * 1024**2
"""The approximate number of bytes of a large tensor that are hashed, so that hashing takes only
milliseconds.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Samples in memory: *inputs* of shape (samples, ...) and *targets* of shape (samples, ...).

    *inputs* is a tensor, or a mapping from the names of the model's arguments to tensors; *targets*
    may be one of these tensors.
    """

    inputs: Any
    targets: Tensor

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def tensors(self) -> list[Tensor]:
        """All distinct tensors: the inputs, then the targets."""
        inputs = self.inputs.values() if isinstance(self.inputs, Mapping) else [self.inputs]
        return list({id(tensor): tensor for tensor in (*inputs, self.targets)}.values())

    def each(self, function: Callable[..., Tensor], *others: Samples) -> tuple[Any, Tensor]:
        """Apply *function* to each tensor and its counterparts in *others*; return the results as
        (inputs, targets).

        The function is called once per tensor, so if the targets are one of the inputs, this is
        also true of the results.
        """
        found = {
            id(tensors[0]): function(*tensors)
            for tensors in zip(self.tensors, *(other.tensors for other in others), strict=True)
        }
        if isinstance(self.inputs, Mapping):
            return {name: found[id(tensor)] for name, tensor in self.inputs.items()}, found[id(self.targets)]
        return found[id(self.inputs)], found[id(self.targets)]

    def first(self, count: int) -> Samples:
        """Return the first *count* samples, as views."""
        return Samples(*self.each(lambda tensor: tensor[:count]))

    def to(self, device: torch.device) -> Self:
        """Return the samples on *device*, or self if all tensors are there already."""
        if all(tensor.device == device for tensor in self.tensors):
            return self
        inputs, targets = self.each(lambda tensor: tensor.to(device, non_blocking=True))
        return replace(self, inputs=inputs, targets=targets)

    def digest(self) -> str:
        """Return a hash of names, shapes and contents.

        For a large tensor, only evenly spaced rows are hashed.
        """
        names = list(self.inputs) if isinstance(self.inputs, Mapping) else []
        found = hashlib.sha256(repr(names).encode())
        for tensor in self.tensors:
            found.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
            if tensor.is_meta or not tensor.numel():
                continue
            rows = min(len(tensor), max(2, len(tensor) * HASHED_BYTES // tensor.nbytes))
            places = torch.linspace(0, len(tensor) - 1, rows, dtype=torch.float64).long()
            chosen = tensor.detach() if rows == len(tensor) else tensor.detach().index_select(0, places)
            found.update(chosen.contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return found.hexdigest()

    def shapes(self) -> str:
        """Return a description of the shapes of inputs and targets, for errors."""
        inputs = self.inputs
        if not isinstance(inputs, Mapping):
            return f"inputs of shape {tuple(inputs.shape)} and targets of {tuple(self.targets.shape)}"
        named = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in inputs.items())
        own = any(tensor is self.targets for tensor in inputs.values())
        return f"inputs {named}" + ("" if own else f" and targets of {tuple(self.targets.shape)}")


@dataclass(frozen=True, slots=True, eq=False)
class Batch(Samples):
    """The samples of one training step of a rank; *step* counts the rank's batches from 0."""

    step: int = 0


class BatchSizes(tuple[int, ...]):
    """The number of samples in each rank's batch. All replicas of a simulation share one object."""

    @cached_property
    def total(self) -> int:
        """The number of samples in the batches of all ranks together."""
        return sum(self)
