"""An algorithm of your own: local SGD. Every rank trains alone for `interval` steps, then all average."""

from simcluster import Replica, Transport
from simcluster.algorithms import steps
from simcluster.collectives import flatten, ring_all_reduce, unflatten


async def local_sgd(node: Transport, replica: Replica, *, interval: int = 10) -> None:
    async for step, batch in steps(replica):
        # compute: one step of this rank's own
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        await node.compute(replica.apply, gradients, cost=replica.apply_cost())

        # communicate: the mean of all weights, now and then
        if step % interval == 0 or step == replica.steps:
            total = await ring_all_reduce(node, flatten(replica.parameters), f"average/{step}")
            replica.load(unflatten(total / node.size, replica.parameters))
        node.record(step=step, loss=loss)
