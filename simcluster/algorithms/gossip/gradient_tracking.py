"""Gradient tracking: gossip in which each rank steps along an estimate of the mean gradient, not its own gradient.

DIGing of Nedic, Olshevsky and Shi 2017 (SIAM J. Optim.), section 2: x_i <- sum_j W_ij x_j - eta y_i, and y_i <- sum_j
W_ij y_j + g_i(new) - g_i(old), so the mean of y is always the mean of g. On heterogeneous data, D-PSGD with a constant
step size misses the optimum; gradient tracking converges to it.

If W_ij = W_ji, the flow from j to i, the sum of W_ij (y_j - y_i) over the rounds, is minus the flow from i to j. So
when j is lost, each neighbour subtracts its flow from j: the survivors' mean y is again the mean of their g, and they
converge to the optimum of their own data.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import NonNegativeInt
from torch import Tensor

from simcluster.algorithms.facts import Facts, by_samples
from simcluster.algorithms.gossip.gossip_copies import SUMS_STAY, gradient_tracking_copies
from simcluster.algorithms.steps import resumable, steps
from simcluster.overlays import BalancedOverlay, Neighbourhood, mix, overlay_for, unbalanced
from simcluster.payload import pack
from simcluster.transport import Transport
from simcluster.workloads import Replica
from simcluster.workloads.shares import weighed


@Facts(copies=gradient_tracking_copies, stays=lambda _: SUMS_STAY, evenly=by_samples)
async def gradient_tracking(
    node: Transport,
    replica: Replica,
    *,
    overlay: BalancedOverlay = "ring",
    consensus_every: NonNegativeInt = 0,
    output: Literal["local", "mean"] = "local",
) -> None:
    """Train with one gradient and one round of gossip per batch; a round sends twice as many bytes
    as in D-PSGD.

    *consensus_every*: the number of steps between computations of the mean model, to record the
    squared distance from that mean; 0 for never. *output*: the final model, either the rank's
    `local` model or the `mean` of all.

    On symmetric, static overlays ranks survive the loss of a neighbour; a rank without neighbours
    trains alone. On other overlays, or if the mean of all models is computed, a loss raises
    PeerLost.
    """
    graph = overlay_for(overlay, node.size, node.rng.seed, unbalanced)
    zero = [torch.zeros_like(parameter) for parameter in replica.parameters]
    state = resumable(replica, y=zero, old=zero, flows={})  # before the first gradient both are 0
    bears_losses = graph.symmetric and not graph.changing and output == "local" and not consensus_every
    neighbours = await Neighbourhood.meet(node, graph, bears_losses=bears_losses)

    async for step, batch in steps(replica, keep=state):
        async with asyncio.TaskGroup() as group:
            # Phase 1, mix weights and estimates, while the gradient is computed.
            mixing = group.create_task(_mix(neighbours, step, replica.parameters, state.y, state.flows))
            # Phase 2, compute: the gradient at this rank's own weights.
            loss, new = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))

        # Phase 3, track: add the change of this rank's gradient, weighted by samples, to its estimate.
        (x, y), new = mixing.result(), weighed(replica, new)
        state.y = [estimate + (now - before) for estimate, now, before in zip(y, new, state.old, strict=True)]
        state.old = new

        # Phase 4, step: along the estimate.
        replica.load(x)
        await node.compute(replica.apply, state.y, cost=replica.apply_cost())

        # Phase 5, measure: the distance from the mean of all.
        node.record(step=step, loss=loss, **await neighbours.consensus(step, consensus_every, replica))

    if output == "mean":
        await neighbours.end_with_mean(replica)


async def _mix(
    neighbours: Neighbourhood, step: int, x: Sequence[Tensor], y: Sequence[Tensor], flows: dict[int, list[Tensor]]
) -> tuple[list[Tensor], list[Tensor]]:
    """Return (sum_j W_ij x_j, sum_j W_ij y_j) over this rank and its neighbours.

    *flows*: neighbour -> its total flow into y. This function updates it, and subtracts the flow of
    a lost neighbour.
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
