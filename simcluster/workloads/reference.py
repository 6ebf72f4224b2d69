"""Training in one process, which is the reference for every synchronous algorithm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from simcluster.workloads.data.samples import Batch
from simcluster.workloads.data.streams import joined
from simcluster.workloads.replica import Replica
from simcluster.workloads.workload import Workload


def joined_batches(replicas: Sequence[Replica]) -> Iterator[Batch]:
    """For each step, yield one batch that joins the batches of all *replicas* in rank order."""
    return joined([replica.batches() for replica in replicas])


def train_alone(workload: Workload, size: int, seed: int, steps: int) -> list[Tensor]:
    """Return the weights after *steps* steps of one process on the joined batches of *size* ranks.

    The mean gradient of *size* batches, weighted by their samples, is the gradient of the joined
    batch, so every synchronous algorithm must end with these weights, up to rounding. (Dropout is
    an exception, since it draws only once for the joined batch here.)
    """
    replicas = [workload.replica(rank, size, seed, steps) for rank in range(size)]
    alone = replicas[0]
    for batch in joined_batches(replicas):
        alone.apply(alone.loss_and_gradients(batch)[1])
    return alone.snapshot()
