"""Workloads in which every rank has a sample of its own, so that ranks differ, and it is known by how much.

With R ranks asked for, the run must have R.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from simcluster import Workload
from simcluster.workloads import sgd
from simcluster.workloads.optimizers import MakeOptimizer


def curvatures_and_centres(ranks: int, size: int) -> tuple[Tensor, Tensor]:
    """(A, B), a row for each rank: the curvatures, from 0.5 to 2, and minima of its quadratics."""
    generator = torch.Generator().manual_seed(2)
    curvatures = 0.5 + 1.5 * torch.rand(ranks, size, generator=generator, dtype=torch.float64)
    return curvatures, torch.randn(ranks, size, generator=generator, dtype=torch.float64)


def kicks(ranks: int, size: int) -> Tensor:
    """A row for each rank: where its first step takes it from 0."""
    return torch.randn(ranks, size, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def bowls(*, ranks: int = 4, size: int = 4, learning_rate: float = 0.1) -> Workload:
    """Rank r descends sum_k A_rk (x_k - B_rk)^2 / 2 from 0, without noise."""
    inputs = torch.stack(curvatures_and_centres(ranks, size), dim=1)
    return _workload(
        inputs, lambda x, sample: (sample[:, 0] * (x - sample[:, 1]).square()).sum(1) / 2, sgd(learning_rate)
    )


def kicked(*, ranks: int = 4, size: int = 4) -> Workload:
    """The first step takes rank r from 0 to row r of `kicks`; from then on nothing is learnt, only averaged."""
    return _workload(-kicks(ranks, size), lambda x, sample: (x * sample).sum(1), OneStep)


class OneStep(torch.optim.SGD):
    """A step of 1, and then steps of 0."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        super().__init__(parameters, lr=1.0, foreach=False)

    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        for group in self.param_groups:
            group["lr"] = 0.0


class _Point(nn.Module):
    def __init__(self, size: int, height: Any) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.zeros(size, dtype=torch.float64))
        self._height = height

    def forward(self, sample: Tensor) -> Tensor:
        height: Tensor = self._height(self.x, sample)
        return height


def _workload(inputs: Tensor, height: Any, optimizer: MakeOptimizer) -> Workload:
    ranks, size = len(inputs), inputs.shape[-1]
    return Workload(
        model=lambda: _Point(size, height),
        loss=lambda heights, _: heights.mean(),
        train=(inputs, torch.zeros(ranks)),
        optimizer=optimizer,
        batch_size=1,
        partition=_one_each,
    )


def _one_each(labels: Any, shards: int, rng: np.random.Generator) -> list[Any]:
    assert len(labels) == shards, "as many ranks as the workload has"
    return [np.array([rank]) for rank in range(shards)]
