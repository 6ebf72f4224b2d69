"""Decentralized parallel SGD: every rank steps along its own gradient and averages weights with its neighbours.

Lian et al. 2017 (NeurIPS), algorithm 1: x_i <- sum_j W_ij x_j - eta g_i, with W doubly stochastic. No rank holds the
mean of all models, but that mean takes the steps of the mean gradient; W's spectral gap keeps the models together.
"""

from __future__ import annotations

import asyncio
from typing import Literal

from pydantic import NonNegativeInt

from simcluster.algorithms.facts import Facts, by_samples
from simcluster.algorithms.gossip.gossip_copies import d_psgd_copies
from simcluster.algorithms.steps import steps
from simcluster.overlays import BalancedOverlay, Neighbourhood, overlay_for, unbalanced
from simcluster.transport import Transport
from simcluster.workloads import Replica
from simcluster.workloads.shares import weighed


@Facts(copies=d_psgd_copies, spares="any", evenly=by_samples)
async def d_psgd(
    node: Transport,
    replica: Replica,
    *,
    overlay: BalancedOverlay = "ring",
    order: Literal["mix_then_step", "step_then_mix"] = "mix_then_step",
    consensus_every: NonNegativeInt = 0,
    output: Literal["local", "mean"] = "local",
) -> None:
    """Train with one gradient and one round of gossip per batch.

    *order*: `mix_then_step` is the paper's: weights travel while the gradient is computed.
    `step_then_mix` sends the result of the step, x_i <- sum_j W_ij (x_j - eta g_j): communication
    does not overlap computation, and on the complete graph the result equals that of all-reduce.
    *consensus_every*: the number of steps between computations of the mean model, to record the
    squared distance from that mean; 0 for never. *output*: the final model, either the rank's
    `local` model or the `mean` of all, which the paper's algorithm returns.

    On symmetric overlays ranks survive the loss of a neighbour and add its weight W_ij to their
    own; a rank without neighbours trains alone. On directed overlays, or if the mean of all models
    is computed, a loss raises PeerLost.
    """
    graph = overlay_for(overlay, node.size, node.rng.seed, unbalanced)
    bears_losses = graph.symmetric and output == "local" and not consensus_every
    neighbours = await Neighbourhood.meet(node, graph, bears_losses=bears_losses)

    async for step, batch in steps(replica):
        async with asyncio.TaskGroup() as group:
            # Phase 1, mix, while the gradient is computed: the neighbours' weights from before the step.
            if order == "mix_then_step":
                mixing = group.create_task(neighbours.mix(step, replica.parameters))
            # Phase 2, compute: the gradient at this rank's own weights.
            loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))

        # Phase 3, step: weighted by samples, so that the mean of all models takes the step of the
        # joined batch. With `step_then_mix`, mix the result.
        if order == "mix_then_step":
            replica.load(mixing.result())
        await node.compute(replica.apply, weighed(replica, gradients), cost=replica.apply_cost())
        if order == "step_then_mix":
            replica.load(await neighbours.mix(step, replica.parameters))

        # Phase 4, measure: the distance from the mean of all.
        node.record(step=step, loss=loss, **await neighbours.consensus(step, consensus_every, replica))

    if output == "mean":
        await neighbours.end_with_mean(replica)
