"""An algorithm whose result shows a maximum over ranks: the mean gradient, divided by the largest norm of any rank."""

from __future__ import annotations

import torch

from simcluster import Replica, Transport
from simcluster.algorithms import steps
from simcluster.collectives import all_reduce, flatten, unflatten
from simcluster.lab.verify.claim import Claim, Settings, Weights
from simcluster.lab.verify.naive import born, gradients_of
from simcluster.transport import FREE
from simcluster.workloads import Workload


async def scaled(node: Transport, replica: Replica) -> None:
    async for step, batch in steps(replica):
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        own = flatten(gradients)
        mean = await all_reduce(node, own, f"mean/{step}", op="mean")
        largest = await all_reduce(node, own.norm(), f"largest/{step}", op="max")
        scaled = unflatten(mean / largest, gradients)
        await node.compute(replica.apply, scaled, cost=FREE)
        node.record(step=step, loss=loss)


def in_one_process(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    replicas = born(workload, size, seed, steps)
    for gradients in gradients_of(replicas):
        vectors = torch.stack([flatten(each) for each in gradients])
        step = unflatten(vectors.mean(0) / vectors.norm(dim=1).max(), gradients[0])
        for replica in replicas:
            replica.apply(step)
    return [replica.parameters for replica in replicas]


CLAIM = Claim("an example", reference=in_one_process, replicas_agree=True)
