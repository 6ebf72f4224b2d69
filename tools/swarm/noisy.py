"""A user's algorithm that draws from global generators: data parallelism with noisy gradients."""

from __future__ import annotations

import numpy as np
import torch

from simcluster.algorithms import steps
from simcluster.collectives import all_reduce, flatten, unflatten
from simcluster.regroup import in_step
from simcluster.transport import Transport
from simcluster.workloads import Replica


@in_step
async def noisy(node: Transport, replica: Replica) -> None:
    async for step, batch in steps(replica):
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        # As in users' code; `import random` would be refused.
        noise = float(torch.rand(())) + np.random.rand()
        summed = await all_reduce(node, flatten(gradients) * (1.0 + noise), f"gradients/{step}")
        mean = unflatten(summed / node.size, gradients)
        await node.compute(replica.apply, mean, cost=replica.apply_cost())
        node.record(step=step, loss=loss)
