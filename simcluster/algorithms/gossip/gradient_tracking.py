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
from simcluster.algorithms.steps import resumable, steps
from simcluster.overlays import BalancedOverlay, Neighbourhood, mix, overlay_for, unbalanced
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
    zero = [torch.zeros_like(parameter) for parameter in replica.parameters]
    state = resumable(replica, y=zero, old=zero, flows={})  # the gradient before the first is 0, and so is its estimate
    neighbours = await Neighbourhood.meet(node, graph, bears_losses=graph.symmetric and not graph.changing)

    async for step, batch in steps(replica, keep=state):
        async with asyncio.TaskGroup() as group:
            # Phase 1, mix weights and estimates, while the gradient is computed.
            mixing = group.create_task(_mix(neighbours, step, replica.parameters, state.y, state.flows))
            # Phase 2, compute: the gradient at this rank's own weights.
            loss, new = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))

        # Phase 3, track: the change of this rank's gradient goes into its estimate.
        x, y = mixing.result()
        state.y = [estimate + (now - before) for estimate, now, before in zip(y, new, state.old, strict=True)]
        state.old = new

        # Phase 4, step: along the estimate.
        replica.load(x)
        await node.compute(replica.apply, state.y, cost=replica.apply_cost())

        # Phase 5, look: how far this rank is from the mean of all.
        node.record(step=step, loss=loss, **await neighbours.consensus(step, consensus_every, replica))

    if output == "mean":
        await neighbours.end_with_mean(replica)


async def _mix(
    neighbours: Neighbourhood, step: int, x: Sequence[Tensor], y: Sequence[Tensor], flows: dict[int, list[Tensor]]
) -> tuple[list[Tensor], list[Tensor]]:
    """Return (sum_j W_ij x_j, sum_j W_ij y_j) over this rank and its neighbours.

    *flows*: the sum of all that has flowed into y from each of them; that of a lost one is taken out again.
    """
    came = await neighbours.swap(step, "weights", pack(*x, *y))
    weights = neighbours.weights(step, came)
    mixed = mix(weights, came.by_rank(neighbours.node.rank, [*x, *y]))
    x, y_mixed = mixed[: len(x)], mixed[len(x) :]
    for rank, message in came.messages.items() if neighbours.bears_losses else ():
        flow = flows.setdefault(rank, [torch.zeros_like(tensor) for tensor in y])
        for into, theirs, mine in zip(flow, message.tensors[len(x) :], y, strict=True):
            into.add_(theirs - mine, alpha=weights[rank])
    for rank in came.losses:
        for into, part in zip(y_mixed, flows.pop(rank, ()), strict=False):
            into.sub_(part)
    return x, y_mixed
