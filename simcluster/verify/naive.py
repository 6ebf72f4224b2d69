"""Parts of naive references: many replicas in one process, their weights as vectors, rounds of steps on their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import torch
from torch import Tensor

from simcluster.verify.claim import Contributions
from simcluster.workloads import Batch, Replica, Workload


def born(workload: Workload, size: int, seed: int, steps: int) -> list[Replica]:
    """Every rank's replica, as a run of *size* ranks begins with it."""
    return [workload.replica(rank, size, seed, steps) for rank in range(size)]


def vector(replica: Replica) -> Tensor:
    """The weights, end to end."""
    return torch.cat([parameter.flatten() for parameter in replica.parameters]).clone()


def overwrite(replica: Replica, weights: Tensor) -> None:
    start = 0
    for parameter in replica.parameters:
        parameter.copy_(weights[start : start + parameter.numel()].view(parameter.shape))
        start += parameter.numel()


def walk(replica: Replica, batches: Iterator[Batch], count: int) -> None:
    """*count* steps of its own, fewer if there are no more batches."""
    for batch in islice(batches, count):
        replica.apply(replica.loss_and_gradients(batch)[1])


def outer_sgd(start: Tensor, learning_rate: float, momentum: float) -> tuple[torch.nn.Parameter, torch.optim.SGD]:
    """(a weight that begins at *start*, torch's own Nesterov for it)."""
    theta = torch.nn.Parameter(start.clone())
    return theta, torch.optim.SGD([theta], lr=learning_rate, momentum=momentum, nesterov=momentum > 0)


def descend(theta: torch.nn.Parameter, optimizer: torch.optim.SGD, gradient: Tensor) -> None:
    theta.grad = gradient
    optimizer.step()


def ended(replicas: Sequence[Replica]) -> list[list[Tensor]]:
    """The weights of each, as a reference returns them."""
    return [replica.snapshot() for replica in replicas]


def rounds(steps: int, interval: object) -> int:
    """How many rounds of *interval* steps there are, the last perhaps shorter."""
    return -(-steps // int(str(interval)))


def models_sent(size: int, settings: Mapping[str, object]) -> int:
    """What all ranks send in an all-reduce, in lengths of what is summed, by the schedules of which that is whole."""
    return {"ring": 2 * (size - 1), "direct": 2 * (size - 1), "naive": size * (size - 1)}[str(settings["schedule"])]


def account(metrics: Sequence[Mapping[str, Sequence[tuple[int, float]]]]) -> Contributions:
    """Where every rank has counted what it *pushed*, and rank 0 what it *applied* and *rejected*: the last counts."""

    def last(rank: int, name: str) -> int:
        found = metrics[rank].get(name, ())
        return int(found[-1][1]) if found else 0

    pushed = sum(last(rank, "pushed") for rank in range(len(metrics)))
    return Contributions(pushed, last(0, "applied"), last(0, "rejected"))
