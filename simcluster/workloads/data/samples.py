"""Training data in memory: inputs and targets as tensors, and the batches cut from them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor

HASHED_BYTES = 4 * 1024**2
"""About the most of a tensor that is hashed: that takes milliseconds."""


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """*inputs* (samples, ...) and *targets* (samples, ...), in memory.

    *inputs* is a tensor, or a mapping of tensors by the names of the model's arguments; *targets* may be one of those.
    """

    inputs: Any
    targets: Tensor

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors, each once: the inputs, then the targets."""
        inputs = self.inputs.values() if isinstance(self.inputs, Mapping) else [self.inputs]
        return list({id(tensor): tensor for tensor in (*inputs, self.targets)}.values())

    def each(self, function: Callable[..., Tensor], *others: Samples) -> tuple[Any, Tensor]:
        """Return (inputs, targets) with *function* of each tensor, and of that in its place in each of *others*.

        It is called once for each tensor: targets that are one of the inputs stay that one.
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
        """Return the samples on *device*; these if they are there."""
        if all(tensor.device == device for tensor in self.tensors):
            return self
        inputs, targets = self.each(lambda tensor: tensor.to(device, non_blocking=True))
        return replace(self, inputs=inputs, targets=targets)

    def digest(self) -> str:
        """Return a hash of names, shapes and contents; of a large tensor, of rows from the first to the last."""
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
        """Return the shapes in words, for errors."""
        inputs = self.inputs
        if not isinstance(inputs, Mapping):
            return f"inputs of shape {tuple(inputs.shape)} and targets of {tuple(self.targets.shape)}"
        named = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in inputs.items())
        own = any(tensor is self.targets for tensor in inputs.values())
        return f"inputs {named}" + ("" if own else f" and targets of {tuple(self.targets.shape)}")


@dataclass(frozen=True, slots=True, eq=False)
class Batch(Samples):
    """*inputs* (batch, ...) and *targets* (batch, ...); *step* counts a rank's batches from 0."""

    step: int = 0


class BatchSizes(tuple[int, ...]):
    """The samples of a batch, by rank; one object for all replicas of a simulation."""

    @cached_property
    def total(self) -> int:
        """The samples of a batch that joins those of all ranks."""
        return sum(self)
