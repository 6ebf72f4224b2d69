"""Data parallelism at a set pace. The pace does not affect the weights."""

from __future__ import annotations

import asyncio

from simcluster import Replica, Transport
from simcluster.collectives import flatten, ring_all_reduce, unflatten


async def paced(node: Transport, replica: Replica, *, pace_s: float = 0.0) -> None:
    for step, batch in enumerate(replica.batches(), start=1):
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        total = await ring_all_reduce(node, flatten(gradients), f"gradients/{step}")
        mean = unflatten(total / node.size, gradients)
        await node.compute(replica.apply, mean, cost=replica.apply_cost())
        node.record(step=step, loss=loss)
        await asyncio.sleep(pace_s)
