"""Small replicas, and models with some property that a replica must respect."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from simcluster.rng import numpy_stream
from simcluster.workloads import Workload, sgd


def some_data(samples: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    rng = numpy_stream(0, "test data")
    return torch.from_numpy(rng.standard_normal((samples, 6))).float(), torch.arange(samples) % 3


def replica_of(model=lambda: nn.Linear(6, 3), *, rank=0, size=2, seed=0, steps=7, **changes):
    settings = {"loss": cross_entropy, "train": some_data(), "optimizer": sgd(0.1), "batch_size": 8}
    return Workload(model=model, **settings | changes).replica(rank, size, seed, steps)


def dropping_out() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.5), nn.Linear(16, 3))


def normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Linear(16, 3))


def equal(some, others) -> bool:
    return all(torch.equal(a, b) for a, b in zip(some, others, strict=True))


def train(replica) -> None:
    for batch in replica.batches():
        replica.apply(replica.loss_and_gradients(batch)[1])


class Summed(nn.Module):
    """Autograd hands out one gradient for both *a* and *b*, and none for *unused*."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.unused = (nn.Parameter(torch.ones(6)) for _ in range(3))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs @ (self.a + self.b)


class Spread(nn.Module):
    """Autograd hands out one number for all of *offsets*."""

    def __init__(self) -> None:
        super().__init__()
        self.offsets = nn.Parameter(torch.ones(6))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.sum(1) + self.offsets.sum()
