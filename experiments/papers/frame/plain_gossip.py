"""Gossip without the correction of push-sum: a rank averages what comes in, in equal parts, whatever goes out."""

from __future__ import annotations

from simcluster import Replica, Transport, pack
from simcluster.algorithms import steps
from simcluster.overlays import AnyOverlay, mix, overlay_for, swap


async def plain_gossip(node: Transport, replica: Replica, *, overlay: AnyOverlay) -> None:
    """A step, then a round: rows of the matrix sum to 1, and columns do not where degrees differ."""
    graph, me = overlay_for(overlay, node.size, node.rng.seed), node.rank
    async for step, batch in steps(replica):
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        await node.compute(replica.apply, gradients, cost=replica.apply_cost())
        came = await swap(node, graph.receivers(me), graph.senders(me), f"mix/{step}", pack(*replica.parameters))
        models = came.by_rank(me, replica.parameters)
        replica.load(mix(dict.fromkeys(models, 1 / len(models)), models))
        node.record(step=step, loss=loss)
