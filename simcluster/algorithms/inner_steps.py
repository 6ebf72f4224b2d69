"""What happens between two synchronisations: some steps of a replica's own optimizer, alone.

This file knows one replica. It must not know other ranks, or what is made of the weights afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from simcluster.transport import Transport
from simcluster.workloads import Batch, Replica


async def inner_steps(
    node: Transport, replica: Replica, batches: Iterator[Batch], step: int, count: int
) -> tuple[int, float]:
    """*count* steps after *step*, fewer if the batches end before. Returns (last step, its loss), not yet recorded:
    a round's last loss is recorded by the caller, after it has synchronised, which is when weights are worth judging.
    """
    last = min(step + count, replica.steps)
    loss = float("nan")
    for batch in islice(batches, last - step):
        step += 1
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        await node.compute(replica.apply, gradients, cost=replica.apply_cost())
        if step < last:
            node.record(step=step, loss=loss)
    return step, loss
