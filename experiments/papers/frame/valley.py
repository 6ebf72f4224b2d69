"""A workload on which signs of gradients lead nowhere: two numbers in a steep valley that slopes along (1, 1)."""

import torch
from torch import Tensor, nn

from simcluster import Workload
from simcluster.workloads import sgd


class Valley(nn.Module):
    """0.5 |x1 + x2| + |x1 - x2|, whatever comes in."""

    def __init__(self) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.tensor([1.0, 1.1], dtype=torch.float64))

    def forward(self, inputs: Tensor) -> Tensor:
        height = 0.5 * (self.x[0] + self.x[1]).abs() + (self.x[0] - self.x[1]).abs()
        return height + 0 * inputs.sum(1)


def valley(*, learning_rate: float = 0.01) -> Workload:
    """Down from (1, 1.1)."""
    inputs, targets = torch.zeros(8, 1, dtype=torch.float64), torch.zeros(8)
    return Workload(
        model=Valley,
        loss=lambda outputs, _: outputs.mean(),
        train=(inputs, targets),
        test=(inputs[:1], targets[:1]),
        optimizer=sgd(learning_rate),
        batch_size=1,
    )
