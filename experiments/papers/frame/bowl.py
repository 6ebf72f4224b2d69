"""A workload of which everything is known: |x|^2/2 in some coordinates, with normal noise in its gradient."""

from typing import Literal

import torch
from torch import Tensor, nn

from simcluster import Workload
from simcluster.workloads import sgd


class Bowl(nn.Module):
    """curvature |x|^2 / 2 + x . z for noise z: the gradient is curvature x + z."""

    def __init__(self, size: int, start: float, curvature: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.full((size,), start, dtype=dtype))
        self.curvature = curvature

    def forward(self, noise: Tensor) -> Tensor:
        return (self.curvature * self.x.square() / 2 + self.x * noise).sum(1)


def bowl(
    *,
    learning_rate: float = 0.1,
    momentum: float = 0.0,
    sigma: float = 0.0,
    size: int = 1,
    start: float = 1.0,
    curvature: float = 1.0,
    probe: float = 0.0,
    samples: int = 64,
    batch_size: int = 1,
    dtype: Literal["float32", "float64"] = "float64",
) -> Workload:
    """Down from (start, start, ...), *size* coordinates, noise of deviation *sigma*; a sample is one draw of it.

    The held-out loss has no noise: the sum of curvature x^2/2 + probe x, from which one x can be told, sign included.
    """
    kind = torch.float32 if dtype == "float32" else torch.float64
    noise = sigma * torch.randn(samples, size, generator=torch.Generator().manual_seed(1), dtype=kind)
    return Workload(
        model=lambda: Bowl(size, start, curvature, kind),
        loss=lambda outputs, _: outputs.mean(),
        train=(noise, torch.zeros(samples)),
        test=(torch.full((1, size), probe, dtype=kind), torch.zeros(1)),
        optimizer=sgd(learning_rate, momentum),
        batch_size=batch_size,
    )
