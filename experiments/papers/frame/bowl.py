"""A workload of which everything is known: |x|^2/2 in some coordinates, with normal noise in its gradient."""

import torch
from torch import Tensor, nn

from simcluster import Workload
from simcluster.workloads import sgd


class Bowl(nn.Module):
    """curvature |x|^2 / 2 + x . z for noise z: the gradient is curvature x + z."""

    def __init__(self, size: int, start: float, curvature: float) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.full((size,), start, dtype=torch.float64))
        self.curvature = curvature

    def forward(self, noise: Tensor) -> Tensor:
        return (self.curvature * self.x.square() / 2 + self.x * noise).sum(1)


def bowl(
    *,
    learning_rate: float = 0.1,
    sigma: float = 0.0,
    size: int = 1,
    start: float = 1.0,
    curvature: float = 1.0,
    samples: int = 64,
    batch_size: int = 1,
) -> Workload:
    """Down from (start, start, ...), *size* coordinates, noise of deviation *sigma*; a sample is one draw of it."""
    noise = sigma * torch.randn(samples, size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return Workload(
        model=lambda: Bowl(size, start, curvature),
        loss=lambda outputs, _: outputs.mean(),
        train=(noise, torch.zeros(samples)),
        optimizer=sgd(learning_rate),
        batch_size=batch_size,
    )
