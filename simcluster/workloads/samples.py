"""Training data: inputs and targets as two tensors, and the batches cut from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias

import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from simcluster.errors import Problem, UsageError


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """*inputs* (samples, ...) and *targets* (samples, ...), in memory."""

    inputs: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.inputs)

    def to(self, device: torch.device) -> Self:
        """Return the samples on *device*; these if they are there."""
        if self.inputs.device == self.targets.device == device:
            return self
        inputs, targets = (part.to(device, non_blocking=True) for part in (self.inputs, self.targets))
        return replace(self, inputs=inputs, targets=targets)


@dataclass(frozen=True, slots=True, eq=False)
class Batch(Samples):
    """*inputs* (batch, ...) and *targets* (batch, ...); *step* counts a rank's batches from 0."""

    step: int = 0


Data: TypeAlias = Samples | tuple[Tensor, Tensor] | Dataset[Any]
"""Samples, a pair of tensors, or any map-style dataset of (input, target) pairs."""


def as_samples(data: Data, name: str = "train") -> Samples:
    """Return *data* as two tensors on the CPU. Raises UsageError, under the key *name*, if it is not a data set.

    A map-style dataset is read once, item by item, and stacked: it must fit in memory, and random transforms are drawn
    once, not once per pass.
    """
    samples = _pair(data, name)
    if samples.inputs.dim() == 0 or samples.targets.dim() == 0 or len(samples.inputs) != len(samples.targets):
        shapes = f"inputs of shape {tuple(samples.inputs.shape)} and targets of {tuple(samples.targets.shape)}"
        raise UsageError(Problem(name, shapes, "as many inputs as targets, counted by their first dimension"))
    if len(samples) == 0:
        raise UsageError(Problem(name, "0 samples", "at least one"))
    return samples


def _pair(data: Data, name: str) -> Samples:
    if isinstance(data, Samples):
        return data
    pair = data.tensors if isinstance(data, TensorDataset) else data
    if isinstance(pair, (tuple, list)):
        if len(pair) == 2 and all(isinstance(part, Tensor) for part in pair):
            return Samples(pair[0].detach(), pair[1].detach())
        found = f"{len(pair)} parts: {', '.join(type(part).__name__ for part in pair)}"
        raise UsageError(Problem(name, found, "two tensors, inputs and targets"))
    if not (hasattr(pair, "__len__") and hasattr(pair, "__getitem__")):
        expected = "(inputs, targets), a TensorDataset or a dataset with __len__ and __getitem__"
        raise UsageError(Problem(name, type(pair).__name__, expected))
    if len(pair) == 0:
        raise UsageError(Problem(name, "0 samples", "at least one"))
    try:
        items = [pair[index] for index in range(len(pair))]
        inputs = torch.stack([torch.as_tensor(item) for item, _ in items])
        targets = torch.stack([torch.as_tensor(target) for _, target in items])
    except (TypeError, ValueError, RuntimeError) as error:
        found = f"{type(pair).__name__} whose items do not stack ({error})"
        raise UsageError(Problem(name, found, "(input, target) pairs, all of one shape")) from error
    return Samples(inputs.detach(), targets.detach())
