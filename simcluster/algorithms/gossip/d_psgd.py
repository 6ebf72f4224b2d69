"""Decentralized parallel SGD: every rank takes its own gradient's step and averages weights with its neighbours.

Lian et al. 2017 (NeurIPS), algorithm 1: x_i <- sum_j W_ij x_j - eta g_i, with W doubly stochastic. Nobody has the
mean of all models, but the mean takes the steps that the mean gradient would; the models stay together by W's spectral
gap.
"""

from __future__ import annotations

import asyncio
from typing import Literal

from pydantic import NonNegativeInt

from simcluster.algorithms.facts import Facts
from simcluster.algorithms.gossip.facts import d_psgd_copies
from simcluster.algorithms.steps import steps
from simcluster.overlays import BalancedOverlay, Neighbourhood, overlay_for, unbalanced
from simcluster.transport import Transport
from simcluster.workloads import Replica


@Facts(copies=d_psgd_copies, spares="any")
async def d_psgd(
    node: Transport,
    replica: Replica,
    *,
    overlay: BalancedOverlay = "ring",
    order: Literal["mix_then_step", "step_then_mix"] = "mix_then_step",
    consensus_every: NonNegativeInt = 0,
    output: Literal["local", "mean"] = "local",
) -> None:
    """A round of gossip and a gradient per batch.

    *order*: `mix_then_step` is the paper's, where weights travel while the gradient is computed; `step_then_mix` sends
    what the step has made, x_i <- sum_j W_ij (x_j - eta g_j): no overlap, and on the complete graph the same as
    all-reduce. *consensus_every* so many steps all ranks work out the mean model, to record the squared distance of
    their own from it; 0: never. *output*: what a rank ends with, its `local` model or the `mean` of all, which the
    paper's algorithm returns.

    Where edges go both ways, a neighbour that is lost leaves the others to go on: its weight is one's own from then on.
    Without a neighbour a rank trains alone. PeerLost is raised where edges are directed, and where the mean of all is
    needed.
    """
    graph = overlay_for(overlay, node.size, node.rng.seed, unbalanced)
    neighbours = await Neighbourhood.meet(node, graph, bears_losses=graph.symmetric)

    async for step, batch in steps(replica):
        async with asyncio.TaskGroup() as group:
            # Phase 1, mix, while the gradient is computed: the neighbours' weights as they are before the step.
            if order == "mix_then_step":
                mixing = group.create_task(neighbours.mix(step, replica.parameters))
            # Phase 2, compute: the gradient at this rank's own weights.
            loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))

        # Phase 3, step; and mix the result, if that is the order.
        if order == "mix_then_step":
            replica.load(mixing.result())
        await node.compute(replica.apply, gradients, cost=replica.apply_cost())
        if order == "step_then_mix":
            replica.load(await neighbours.mix(step, replica.parameters))

        # Phase 4, look: how far this rank is from the mean of all.
        node.record(step=step, loss=loss, **await neighbours.consensus(step, consensus_every, replica))

    if output == "mean":
        await neighbours.end_with_mean(replica)
