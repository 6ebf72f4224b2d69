"""A model and data of your own: which of two spirals a point lies on."""

import torch
from simcluster import Workload
from simcluster.workloads import sgd
from torch import nn


def make_workload(*, points: int = 2000, learning_rate: float = 0.2) -> Workload:
    generator = torch.Generator().manual_seed(0)
    arm = torch.arange(points) % 2
    angle = 3.0 * torch.rand(points, generator=generator) + 0.3
    turned = angle + torch.pi * arm
    inputs = torch.stack([angle * turned.cos(), angle * turned.sin()], dim=1)
    inputs += 0.05 * torch.randn(points, 2, generator=generator)
    held_out = points // 5
    return Workload(
        model=lambda: nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2)),
        loss=nn.functional.cross_entropy,
        train=(inputs[held_out:], arm[held_out:]),
        test=(inputs[:held_out], arm[:held_out]),
        optimizer=sgd(learning_rate),
        batch_size=16,
    )
