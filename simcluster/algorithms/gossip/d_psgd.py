"""Decentralized parallel SGD: every rank takes its own gradient's step and averages weights with its neighbours.

Lian et al. 2017 (NeurIPS), algorithm 1: x_i <- sum_j W_ij x_j - eta g_i, with W doubly stochastic. Nobody has the
mean of all models, but the mean takes the steps that the mean gradient would; the models stay together by W's spectral
gap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from pydantic import NonNegativeInt
from torch import Tensor

from simcluster.algorithms.facts import Facts
from simcluster.algorithms.gossip.facts import d_psgd_copies
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
    gone = await absentees(node, graph.neighbours(node.rank))

    for step, batch in enumerate(replica.batches(), start=1 + replica.done):
        async with asyncio.TaskGroup() as group:
            # Phase 1, mix, while the gradient is computed: the neighbours' weights as they are before the step.
            if order == "mix_then_step":
                mixing = group.create_task(_mix(node, graph, step, replica.parameters, gone))
            # Phase 2, compute: the gradient at this rank's own weights.
            loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))

        # Phase 3, step; and mix what it has made, if that is the order.
        if order == "mix_then_step":
            replica.load(mixing.result())
        await node.compute(replica.apply, gradients, cost=replica.apply_cost())
        if order == "step_then_mix":
            replica.load(await _mix(node, graph, step, replica.parameters, gone))

        # Phase 4, look: how far this rank is from the mean of all.
        consensus = {}
        if consensus_every and step % consensus_every == 0:
            mean = await everybodys_mean(node, replica.parameters, f"consensus/{step}", gone)
            consensus = {"consensus": squared_distance(replica.parameters, mean)}
        node.record(step=step, loss=loss, **consensus)
        await replica.checkpoint(step)

    if output == "mean":
        mean = await everybodys_mean(node, replica.parameters, "output", gone)
        node.record(step=replica.steps, consensus=squared_distance(replica.parameters, mean))
        replica.load(mean)


async def _mix(
    node: Transport, graph: Overlay, step: int, x: Sequence[Tensor], gone: dict[int, PeerLost]
) -> list[Tensor]:
    """sum_j W_ij x_j over this rank and those neighbours that are not *gone*, who are noted there."""
    me, number = node.rank, step - 1
    to = [rank for rank in graph.receivers(me, number) if rank not in gone]
    sources = [rank for rank in graph.senders(me, number) if rank not in gone]
    came = await swap(node, to, sources, f"weights/{step}", pack(*x))
    gone |= came.losses
    if gone and not graph.symmetric:
        raise next(reversed(gone.values()))
    check_not_left_behind(gone, graph.neighbours(me))
    absent = [rank for rank in graph.senders(me, number) if rank not in came.messages]
    models = {me: x, **{rank: message.tensors for rank, message in came.messages.items()}}
    return mix(graph.weights(me, number, absent), models)
