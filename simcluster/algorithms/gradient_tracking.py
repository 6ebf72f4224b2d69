"""Gradient tracking: gossip in which every rank's step follows an estimate of the mean gradient, not its own gradient.

DIGing of Nedic, Olshevsky and Shi 2017 (SIAM J. Optim.), section 2: x_i <- sum_j W_ij x_j - eta y_i, and y_i <-
sum_j W_ij y_j + g_i(new) - g_i(old), so the mean of y is always the mean of g. Where ranks have different data, D-PSGD
with a constant step ends beside the optimum; this ends in it.

This file knows neighbours, weights and gradients. It must not know a backend, a file or a clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import NonNegativeInt
from torch import Tensor

from simcluster.overlays import (
    BalancedOverlay,
    Overlay,
    everybodys_mean,
    mix,
    overlay_for,
    squared_distance,
    swap,
    unbalanced,
)
from simcluster.payload import pack
from simcluster.transport import Transport
from simcluster.workloads import Replica


async def gradient_tracking(
    node: Transport,
    replica: Replica,
    *,
    overlay: BalancedOverlay = "ring",
    consensus_every: NonNegativeInt = 0,
    output: Literal["local", "mean"] = "local",
) -> None:
    """A round of gossip, of twice the bytes of D-PSGD, and a gradient per batch.

    *consensus_every* so many steps all ranks work out the mean model, to record the squared distance of their own from
    it; 0: never. *output*: what a rank ends with, its `local` model or the `mean` of all.

    A neighbour that is lost ends it with PeerLost: the estimates of those that live would keep what the lost one had
    put in or taken out, and would lead them beside their optimum for ever.
    """
    graph = overlay_for(overlay, node.size, node.rng.seed, unbalanced)
    y = [torch.zeros_like(parameter) for parameter in replica.parameters]
    y, old = replica.restored(y=y, old=y)  # the gradient before the first is 0, and so is its estimate

    for step, batch in enumerate(replica.batches(), start=1 + replica.done):
        async with asyncio.TaskGroup() as group:
            # Phase 1, mix weights and estimates, while the gradient is computed.
            mixing = group.create_task(_mix(node, graph, step, [*replica.parameters, *y]))
            # Phase 2, compute: the gradient at this rank's own weights.
            loss, new = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))

        # Phase 3, track: what has changed in this rank's gradient goes into its estimate.
        x, y = mixing.result()[: len(y)], mixing.result()[len(y) :]
        y = [estimate + (now - before) for estimate, now, before in zip(y, new, old, strict=True)]
        old = new

        # Phase 4, step: along the estimate.
        replica.load(x)
        await node.compute(replica.apply, y, cost=replica.apply_cost())

        # Phase 5, look: how far this rank is from the mean of all.
        consensus = {}
        if consensus_every and step % consensus_every == 0:
            mean = await everybodys_mean(node, replica.parameters, f"consensus/{step}")
            consensus = {"consensus": squared_distance(replica.parameters, mean)}
        node.record(step=step, loss=loss, **consensus)
        await replica.checkpoint(step, y=y, old=old)

    if output == "mean":
        mean = await everybodys_mean(node, replica.parameters, "output")
        node.record(step=replica.steps, consensus=squared_distance(replica.parameters, mean))
        replica.load(mean)


async def _mix(node: Transport, graph: Overlay, step: int, tensors: Sequence[Tensor]) -> list[Tensor]:
    """sum_j W_ij x_j over this rank and its neighbours."""
    me, number = node.rank, step - 1
    came = await swap(node, graph.receivers(me, number), graph.senders(me, number), f"weights/{step}", pack(*tensors))
    if came.losses:
        raise next(iter(came.losses.values()))
    models = {me: tensors, **{rank: message.tensors for rank, message in came.messages.items()}}
    return mix(graph.weights(me, number), models)
