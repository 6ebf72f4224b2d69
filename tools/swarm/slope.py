"""A workload with one constant gradient, so that any mean of gradients equals this gradient.

If an algorithm divides a sum of gradients by their number, a lost node does not change the weights.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from simcluster import Workload
from simcluster.workloads import sgd


def slope(*, features: int = 4, samples: int = 64, batch_size: int = 2, learning_rate: float = 0.1) -> Workload:
    inputs = torch.ones(samples + 8, features, dtype=torch.float64)
    targets = torch.zeros(samples + 8, 1, dtype=torch.float64)
    return Workload(
        model=lambda: nn.Linear(features, 1, bias=False, dtype=torch.float64),
        loss=_mean,
        train=(inputs[:samples], targets[:samples]),
        test=(inputs[samples:], targets[samples:]),
        optimizer=sgd(learning_rate),
        batch_size=batch_size,
    )


def _mean(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).mean()
