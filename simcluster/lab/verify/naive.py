"""Building blocks for claims: replicas in one process, mixing matrices, bytes and accounts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from simcluster.collectives import flatten, unflatten
from simcluster.lab.verify.claim import Contributions, Settings, Variant, Weights
from simcluster.lab.verify.verdict import NotClaimed, listed
from simcluster.workloads import Batch, Replica, Workload

BY_PLACE = {
    "sites": Variant([[0], [1, 2]], given={"schedule": "hierarchical"}),
    "shares": Variant([1, 1, 2], given={"schedule": "bandwidth_aware"}),
}
"""Variants of the settings of sums by place, for three ranks. On the checks' cluster, the sites are the first half and
the second.
"""


def born(workload: Workload, size: int, seed: int, steps: int) -> list[Replica]:
    """Return the initial replica of each rank in a run of *size* ranks."""
    return [workload.replica(rank, size, seed, steps) for rank in range(size)]


def gradients_of(replicas: Sequence[Replica]) -> Iterator[list[list[Tensor]]]:
    """Yield, for each step, the gradients of all *replicas* at their current weights."""
    for batches in zip(*(replica.batches() for replica in replicas), strict=True):
        yield [replica.loss_and_gradients(batch)[1] for replica, batch in zip(replicas, batches, strict=True)]


def vector(replica: Replica) -> Tensor:
    """Return the weights of *replica* as one vector."""
    return flatten(replica.parameters)


def overwrite(replica: Replica, weights: Tensor) -> None:
    """Load *weights*, which are one vector, into *replica*."""
    replica.load(unflatten(weights, replica.parameters))


def walk(replica: Replica, batches: Iterator[Batch], count: int) -> None:
    """Train *replica* for *count* local steps, or fewer if the batches end."""
    for batch in islice(batches, count):
        replica.apply(replica.loss_and_gradients(batch)[1])


def outer_sgd(start: Tensor, learning_rate: float, momentum: float) -> tuple[Tensor, Callable[[Tensor], None]]:
    """Return (weights, initially *start*; a function that moves them by a step of torch's SGD)."""
    theta = torch.nn.Parameter(start.clone())
    optimizer = torch.optim.SGD([theta], lr=learning_rate, momentum=momentum, nesterov=momentum > 0)

    def step(gradient: Tensor) -> None:
        theta.grad = gradient
        optimizer.step()

    return theta.detach(), step


def mean(parts: Sequence[Tensor]) -> Tensor:
    """Return the mean of *parts*, added up in their order."""
    return sum(parts[1:], start=parts[0]) / len(parts)


def ended(replicas: Sequence[Replica]) -> Weights:
    """Return the weights of each replica, in the form that a `Reference` returns."""
    return [replica.snapshot() for replica in replicas]


def times(matrix: npt.NDArray[np.float64], models: Weights) -> list[list[Tensor]]:
    """Return the product of *matrix* and *models*: one mixed model for each row."""
    weights = torch.from_numpy(matrix)
    columns = [torch.stack(tuple(tensors)) for tensors in zip(*models, strict=True)]
    mixed = [torch.tensordot(weights.to(column.dtype), column, dims=1) for column in columns]
    return [[column[rank] for column in mixed] for rank in range(len(models))]


def output(models: Weights, settings: Settings) -> Weights:
    """Return *models*; if the setting *output* is "mean", return their mean for every rank."""
    size = len(models)
    return times(np.full((size, size), 1 / size), models) if settings["output"] == "mean" else models


def rounds(steps: int, interval: object) -> int:
    """Return the number of rounds of *interval* steps; the last one may be shorter."""
    return -(-steps // int(str(interval)))


def up_and_down(size: int, model_bytes: int, steps: int, settings: Settings) -> int:
    """Return the bytes of one gradient (or change) up and weights down, per worker and round.

    The ranks are assumed to be equally fast. Without the setting *interval*, a round is a step.
    """
    return 2 * (size - 1) * rounds(steps, settings.get("interval", 1)) * model_bytes


def models_sent(size: int, settings: Settings) -> int:
    """Return the bytes that all ranks send in one all-reduce, as a multiple of the model's size.

    Raise NotClaimed for a schedule without a formula.
    """
    known = dict.fromkeys(("ring", "direct", "hierarchical", "bandwidth_aware"), 2 * (size - 1))
    known["naive"] = size * (size - 1)
    if settings["schedule"] not in known:
        raise NotClaimed(f"no formula for {settings['schedule']}; there is one for {listed(known)}")
    return known[settings["schedule"]]


def account(metrics: Sequence[Mapping[str, Sequence[tuple[int, float]]]]) -> Contributions:
    """Return the counts of contributions in *metrics*.

    *pushed* is the sum over all ranks; *applied* and *rejected* are rank 0's.
    """

    def last(rank: int, name: str) -> int:
        found = metrics[rank].get(name, ())
        return int(found[-1][1]) if found else 0

    pushed = sum(last(rank, "pushed") for rank in range(len(metrics)))
    return Contributions(pushed, last(0, "applied"), last(0, "rejected"))
