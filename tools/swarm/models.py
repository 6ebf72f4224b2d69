"""Additional workloads of the swarm: batch normalisation, and draws from global generators."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from simcluster import Workload
from simcluster.workloads import sgd

MEAN: Final = 10.0
"""The mean of the inputs of `normed`. Their standard deviation is 1."""
WIDTH: Final = 3

SOURCES: Final[dict[str, Callable[[], float]]] = {
    "torch": lambda: float(torch.rand(())),
    "numpy": lambda: float(np.random.rand()),  # must be the global generator
    "random": random.random,
}
PLACES: Final = ("data", "model", "loss")


def normed(*, batch_size: int = 8, samples: int = 64, momentum: float = 0.9) -> Workload:
    """Return a workload with a model that is accurate only if its running mean is the inputs' mean.

    The outputs of the model are weighted sums of the inputs minus the running mean.
    """
    generator = torch.Generator().manual_seed(0)
    inputs = MEAN + torch.randn(samples + 16, WIDTH, generator=generator, dtype=torch.float64)
    targets = 0.1 * torch.randn(samples + 16, 1, generator=generator, dtype=torch.float64)

    def model() -> nn.Module:
        layer = nn.Linear(WIDTH, 1, bias=False, dtype=torch.float64)
        nn.init.constant_(layer.weight, 1.0)
        return nn.Sequential(nn.BatchNorm1d(WIDTH, momentum=momentum, affine=False, dtype=torch.float64), layer)

    return Workload(
        model=model,
        loss=nn.functional.mse_loss,
        train=(inputs[:samples], targets[:samples]),
        test=(inputs[samples:], targets[samples:]),
        optimizer=sgd(0.02),
        batch_size=batch_size,
    )


def drawing(*, place: str = "loss", source: str = "random", batch_size: int = 4, samples: int = 64) -> Workload:
    """Return a least squares workload that draws from the global generator of *source*.

    It draws for the data, the model, or each loss, as *place* says.
    """
    draw = SOURCES[source]
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(samples + 16, WIDTH, generator=generator, dtype=torch.float64)
    noise = [draw() if place == "data" else 0.0 for _ in range(samples + 16)]
    targets = inputs.sum(1, keepdim=True) + torch.tensor(noise, dtype=torch.float64)[:, None]

    def model() -> nn.Module:
        layer = nn.Linear(WIDTH, 1, dtype=torch.float64)
        if place == "model":
            nn.init.constant_(layer.bias, draw())
        return layer

    return Workload(
        model=model,
        loss=partial(_noisy, draw) if place == "loss" else nn.functional.mse_loss,
        train=(inputs[:samples], targets[:samples]),
        test=(inputs[samples:], targets[samples:]),
        optimizer=sgd(0.05),
        batch_size=batch_size,
    )


def _noisy(draw: Callable[[], float], outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the loss.

    In training, it is scaled by a random factor; an evaluation draws nothing.
    """
    scale = 1.0 + draw() if outputs.requires_grad else 1.0
    return scale * nn.functional.mse_loss(outputs, targets)
