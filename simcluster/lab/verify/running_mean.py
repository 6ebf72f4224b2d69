"""A workload with a held-out loss that shows the running statistics of a model, and nothing else.

Its ranks have unlike samples. The loss is the squared distance of the model's running mean from the mean of all.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from simcluster.workloads import Workload, sgd
from simcluster.workloads.data.partition import Indices

SAMPLES, MEAN, SPREAD, MOMENTUM = 84, 100.0, 50.0, 0.1


class RunningMean(nn.Module):
    """Subtracts the batch's mean in training, and its running mean afterwards."""

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
    """Returns its inputs, whatever its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(SAMPLES))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + 0 * self.weight.sum()


def _squared(outputs: Tensor, _: Tensor) -> Tensor:
    return outputs.square().mean()


def by_size(targets: npt.NDArray[np.generic], parts: int, rng: np.random.Generator) -> list[Indices]:
    """Deal the smallest samples to rank 0, and so on."""
    return np.array_split(np.arange(len(targets)), parts)


def running_mean() -> Workload:
    inputs = torch.linspace(MEAN - SPREAD, MEAN + SPREAD, SAMPLES)[:, None]
    test = torch.full((2, 1), MEAN), torch.zeros(2)
    return Workload(
        model=lambda: nn.Sequential(RunningMean(), IdentityLayer()), loss=_squared,
        train=(inputs, torch.zeros(SAMPLES)), test=test, optimizer=sgd(0.1), batch_size=4, partition=by_size,
    )  # fmt: skip
