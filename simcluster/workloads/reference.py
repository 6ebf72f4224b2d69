"""Training in one process: the reference for every synchronous algorithm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from simcluster.workloads.data.samples import Batch
from simcluster.workloads.data.streams import joined
from simcluster.workloads.replica import Replica
from simcluster.workloads.workload import Workload


def joined_batches(replicas: Sequence[Replica]) -> Iterator[Batch]:
    """Yield the batches of all *replicas* at each step as one, in rank order."""
    return joined([replica.batches() for replica in replicas])


def train_alone(workload: Workload, size: int, seed: int, steps: int) -> list[Tensor]:
    """Return the weights after *steps* steps of one process on the joined batches of *size* ranks.

    The mean gradient of *size* batches, weighed by their samples, is the gradient of the joined batch, so every
    synchronous algorithm must end with these weights, up to rounding. (Not with dropout: it draws once for the joined
    batch.)
    """
    replicas = [workload.replica(rank, size, seed, steps) for rank in range(size)]
    alone = replicas[0]
    for batch in joined_batches(replicas):
        alone.apply(alone.loss_and_gradients(batch)[1])
    return alone.snapshot()
