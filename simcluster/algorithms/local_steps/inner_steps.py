"""The inner steps between two synchronisations: a replica's own optimizer, alone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from simcluster.transport import Transport
from simcluster.workloads import Batch, Replica


async def inner_steps(
    node: Transport, replica: Replica, batches: Iterator[Batch], step: int, count: int
) -> tuple[int, float]:
    """*count* steps after *step*, fewer if the batches end before. Returns (last step, mean loss of these steps).

    Nothing is recorded here: a run judges rank 0's weights where it records, and within a round they are its own alone.
    """
    last, total = min(step + count, replica.steps), 0.0
    for batch in islice(batches, last - step):
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        await node.compute(replica.apply, gradients, cost=replica.apply_cost())
        total += loss
    return last, total / (last - step)
