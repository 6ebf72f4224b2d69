"""Parts of naive references: many replicas in one process, their weights as vectors, rounds of local steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import torch
from torch import Tensor

from simcluster.verify.claim import Contributions
from simcluster.workloads import Batch, Replica, Workload


def born(workload: Workload, size: int, seed: int, steps: int) -> list[Replica]:
    """Return every rank's replica, as at the start of a run of *size* ranks."""
    return [workload.replica(rank, size, seed, steps) for rank in range(size)]


def vector(replica: Replica) -> Tensor:
    """Return the weights, concatenated."""
    return torch.cat([parameter.flatten() for parameter in replica.parameters]).clone()


def overwrite(replica: Replica, weights: Tensor) -> None:
    start = 0
    for parameter in replica.parameters:
        parameter.copy_(weights[start : start + parameter.numel()].view(parameter.shape))
        start += parameter.numel()


def walk(replica: Replica, batches: Iterator[Batch], count: int) -> None:
    """Take *count* local steps, or fewer if the batches end."""
    for batch in islice(batches, count):
        replica.apply(replica.loss_and_gradients(batch)[1])


def outer_sgd(start: Tensor, learning_rate: float, momentum: float) -> tuple[torch.nn.Parameter, torch.optim.SGD]:
    """Return (a weight that starts at *start*, torch's own Nesterov for it)."""
    theta = torch.nn.Parameter(start.clone())
    return theta, torch.optim.SGD([theta], lr=learning_rate, momentum=momentum, nesterov=momentum > 0)


def descend(theta: torch.nn.Parameter, optimizer: torch.optim.SGD, gradient: Tensor) -> None:
    theta.grad = gradient
    optimizer.step()


def ended(replicas: Sequence[Replica]) -> list[list[Tensor]]:
    """Return the weights of each replica, as a reference does."""
    return [replica.snapshot() for replica in replicas]


def rounds(steps: int, interval: object) -> int:
    """Return the number of rounds of *interval* steps; the last one may be shorter."""
    return -(-steps // int(str(interval)))


def models_sent(size: int, settings: Mapping[str, object]) -> int:
    """Return the vectors that all ranks send in one all-reduce, for schedules with a whole number of them."""
    return {"ring": 2 * (size - 1), "direct": 2 * (size - 1), "naive": size * (size - 1)}[str(settings["schedule"])]


def account(metrics: Sequence[Mapping[str, Sequence[tuple[int, float]]]]) -> Contributions:
    """Read the account: every rank's last *pushed*, and rank 0's last *applied* and *rejected*."""

    def last(rank: int, name: str) -> int:
        found = metrics[rank].get(name, ())
        return int(found[-1][1]) if found else 0

    pushed = sum(last(rank, "pushed") for rank in range(len(metrics)))
    return Contributions(pushed, last(0, "applied"), last(0, "rejected"))
