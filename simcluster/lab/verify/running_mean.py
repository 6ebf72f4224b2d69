"""A workload with a held-out loss that depends only on the model's running statistics.

Ranks have different samples. The loss is the squared distance between the model's running mean and
the mean of all samples.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from simcluster.workloads import Workload, sgd
from simcluster.workloads.data.partition import Indices
from simcluster.workloads.layers.experts import ExpertLayer

SAMPLES = 84
MEAN = 100.0
SPREAD = 50.0
MOMENTUM = 0.1


class RunningMean(nn.Module):
    """A layer that subtracts the batch's mean in training, and the running mean in evaluation."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.full((1,), MEAN - 2 * SPREAD))

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training:
            return inputs - self.mean
        now = inputs.detach().mean(0)
        self.mean.mul_(1 - MOMENTUM).add_(now, alpha=MOMENTUM)
        return inputs - now


class IdentityLayer(nn.Module):
    """A layer that returns its inputs; its unused weights give the optimizer something to train."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(SAMPLES))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + 0 * self.weight.sum()


def _squared(outputs: Tensor, _: Tensor) -> Tensor:
    return outputs.square().mean()


def by_size(targets: npt.NDArray[np.generic], parts: int, rng: np.random.Generator) -> list[Indices]:
    """Give the smallest samples to rank 0, the next to rank 1, and so on."""
    return np.array_split(np.arange(len(targets)), parts)


class ZeroLayer(nn.Linear):
    """An expert that returns zeros."""

    def forward(self, inputs: Tensor) -> Tensor:
        return 0 * super().forward(inputs)


def running_mean() -> Workload:
    """Return the workload; an experiment names this function in `path`."""
    return _running_mean(lambda: nn.Sequential(RunningMean(), IdentityLayer()))


def running_mean_of_experts() -> Workload:
    """Return the same workload for an algorithm that requires experts."""

    def model() -> nn.Module:
        experts = [ZeroLayer(1, 1) for _ in range(SAMPLES)]
        layer = ExpertLayer(nn.Identity(), nn.Linear(1, SAMPLES, bias=False), experts, 1)
        return nn.Sequential(RunningMean(), layer, IdentityLayer())

    return _running_mean(model)


def _running_mean(model: Callable[[], nn.Module]) -> Workload:
    inputs = torch.linspace(MEAN - SPREAD, MEAN + SPREAD, SAMPLES)[:, None]
    test = torch.full((2, 1), MEAN), torch.zeros(2)
    return Workload(
        model=model, loss=_squared,
        train=(inputs, torch.zeros(SAMPLES)), test=test, optimizer=sgd(0.1), batch_size=4, partition=by_size,
    )  # fmt: skip
