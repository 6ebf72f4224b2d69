"""Gradient tracking: gossip in which every rank's step follows an estimate of the mean gradient, not its own gradient.

DIGing of Nedic, Olshevsky and Shi 2017 (SIAM J. Optim.), section 2: x_i <- sum_j W_ij x_j - eta y_i, and y_i <-
sum_j W_ij y_j + g_i(new) - g_i(old), so the mean of y is always the mean of g. Where ranks have different data, D-PSGD
with a constant step ends beside the optimum; this ends in it.

Where W_ij = W_ji, what has flowed from j to i, the sum of W_ij (y_j - y_i) over the rounds, is minus what has flowed
from i to j. So if j is lost, and each neighbour takes back what has flowed from there, the mean of y over those that
live is the mean of their g again, and they end in the optimum of their own data.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import NonNegativeInt
from torch import Tensor

from simcluster.algorithms.facts import Facts
from simcluster.algorithms.gossip.facts import SUMS_STAY, gradient_tracking_copies
from simcluster.errors import PeerLost
from simcluster.overlays import (
    BalancedOverlay,
    Overlay,
    absentees,
    check_not_left_behind,
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


@Facts(copies=gradient_tracking_copies, stays=lambda _: SUMS_STAY)
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

    Where edges go both ways and are the same in every round, a neighbour that is lost leaves the others to go on,
    without a neighbour alone. PeerLost is raised on other overlays, and where the mean of all is needed.
    """
    graph = overlay_for(overlay, node.size, node.rng.seed, unbalanced)
    y = [torch.zeros_like(parameter) for parameter in replica.parameters]
    y, old, flows = replica.restored(y=y, old=y, flows={})  # the gradient before the first is 0, and so is its estimate
    gone = await absentees(node, graph.neighbours(node.rank))

    for step, batch in enumerate(replica.batches(), start=1 + replica.done):
        async with asyncio.TaskGroup() as group:
            # Phase 1, mix weights and estimates, while the gradient is computed.
            mixing = group.create_task(_mix(node, graph, step, replica.parameters, y, flows, gone))
            # Phase 2, compute: the gradient at this rank's own weights.
            loss, new = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))

        # Phase 3, track: what has changed in this rank's gradient goes into its estimate.
        x, y = mixing.result()
        y = [estimate + (now - before) for estimate, now, before in zip(y, new, old, strict=True)]
        old = new

        # Phase 4, step: along the estimate.
        replica.load(x)
        await node.compute(replica.apply, y, cost=replica.apply_cost())

        # Phase 5, look: how far this rank is from the mean of all.
        consensus = {}
        if consensus_every and step % consensus_every == 0:
            mean = await everybodys_mean(node, replica.parameters, f"consensus/{step}", gone)
            consensus = {"consensus": squared_distance(replica.parameters, mean)}
        node.record(step=step, loss=loss, **consensus)
        await replica.checkpoint(step, y=y, old=old, flows=flows)

    if output == "mean":
        mean = await everybodys_mean(node, replica.parameters, "output", gone)
        node.record(step=replica.steps, consensus=squared_distance(replica.parameters, mean))
        replica.load(mean)


async def _mix(
    node: Transport, graph: Overlay, step: int, x: Sequence[Tensor], y: Sequence[Tensor],
    flows: dict[int, list[Tensor]], gone: dict[int, PeerLost],
) -> tuple[list[Tensor], list[Tensor]]:  # fmt: skip
    """(sum_j W_ij x_j, sum_j W_ij y_j) over this rank and those neighbours that are not *gone*, who are noted there.

    *flows*: what has come into y from each of them; of who is lost now it is taken out again.
    """
    me, number = node.rank, step - 1
    to = [rank for rank in graph.receivers(me, number) if rank not in gone]
    sources = [rank for rank in graph.senders(me, number) if rank not in gone]
    came = await swap(node, to, sources, f"weights/{step}", pack(*x, *y))
    gone |= came.losses
    if gone and (not graph.symmetric or graph.changing):
        raise next(reversed(gone.values()))
    check_not_left_behind(gone, graph.neighbours(me))
    absent = [rank for rank in graph.senders(me, number) if rank not in came.messages]
    weights = graph.weights(me, number, absent)
    models: dict[int, Sequence[Tensor]] = {me: [*x, *y]}
    models |= {rank: message.tensors for rank, message in came.messages.items()}
    mixed = mix(weights, models)
    if graph.symmetric and not graph.changing:
        for rank, message in came.messages.items():
            flow = flows.setdefault(rank, [torch.zeros_like(tensor) for tensor in y])
            for into, theirs, mine in zip(flow, message.tensors[len(x) :], y, strict=True):
                into.add_(theirs - mine, alpha=weights[rank])
    for rank in came.losses:
        for into, part in zip(mixed[len(x) :], flows.pop(rank, ()), strict=False):
            into.sub_(part)
    return mixed[: len(x)], mixed[len(x) :]
