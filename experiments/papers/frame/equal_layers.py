"""A workload of layers that all take the same time, forward and backward, and have as many weights."""

from typing import Literal

import torch
from torch import Tensor, nn

from simcluster import Workload
from simcluster.workloads import adamw, sgd


class Equal(nn.Module):
    """One product forward and one of the same size backward, whatever comes in: the first layer has no less to do."""

    other: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width) / width)
        self.register_buffer("other", torch.randn(width, width))

    def forward(self, inputs: Tensor) -> Tensor:
        product: Tensor = self.weight @ self.other
        return inputs + product[0]


def equal_layers(
    *, layers: int = 4, width: int = 8, batch_size: int = 8, optimizer: Literal["sgd", "adamw"] = "sgd"
) -> Workload:
    inputs = torch.zeros(256, width)
    return Workload(
        model=lambda: nn.Sequential(*[Equal(width) for _ in range(layers)]),
        loss=nn.functional.mse_loss,
        train=(inputs, inputs),
        optimizer=adamw(0.001) if optimizer == "adamw" else sgd(0.01),
        batch_size=batch_size,
    )
