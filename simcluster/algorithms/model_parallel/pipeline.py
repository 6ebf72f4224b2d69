"""Pipeline parallelism: each rank holds consecutive layers, and micro-batches pass through them, forward and back.

GPipe (Huang et al. 2019, section 2), one forward one backward (Narayanan et al. 2019, section 3.2,
with the flush of Narayanan et al. 2021, section 2.2.1) and interleaved stages (Narayanan et al.
2021, section 2.2.2). In the symbols of the latter paper, p ranks of v chunks each process m
micro-batches. All ranks together train one model on the joined batches of all ranks.
"""

from __future__ import annotations

import asyncio
from typing import Literal

import torch
from pydantic import PositiveFloat, PositiveInt

from simcluster.algorithms.facts import Facts, always, by_samples, never
from simcluster.algorithms.model_parallel.gathering import WeightGathering
from simcluster.algorithms.model_parallel.memory import parted_shares, pipeline_cut, pipeline_phases
from simcluster.algorithms.model_parallel.order import Order, ranks_of, takes_no_part
from simcluster.algorithms.model_parallel.pipeline_flush import LayerStage, flush, summed
from simcluster.algorithms.model_parallel.pipeline_plan import ORDERS, plan_of
from simcluster.algorithms.model_parallel.placement import placed
from simcluster.algorithms.steps import steps
from simcluster.collectives import naive_all_reduce, subgroup
from simcluster.transport import Transport
from simcluster.workloads import Replica
from simcluster.workloads.data.streams import micro_batches as cut


@Facts(
    phases=pipeline_phases, shares=parted_shares, cut=pipeline_cut, whole=never, evenly=by_samples, joins=always,
    places=placed, idle=takes_no_part, running="none",
)  # fmt: skip
async def pipeline(
    node: Transport,
    replica: Replica,
    *,
    schedule: Literal["gpipe", "1f1b", "interleaved"] = "1f1b",
    order: Order = None,
    micro_batches: PositiveInt | None = None,
    chunks: PositiveInt | None = None,
    cuts: tuple[PositiveInt, ...] | None = None,
    flops_per_s: tuple[PositiveFloat, ...] | Literal["topology"] | None = None,
    bandwidth_Bps: tuple[PositiveFloat, ...] | Literal["topology"] | None = None,
    gather_interval: PositiveInt | None = None,
) -> None:
    """Train with one pipeline flush and one step of each rank's optimizer per batch.

    *order*: the ranks that hold the stages, first to last, by rank or name; None for all ranks, in
    the topology's order; "auto" (only in an experiment) for the order that `placement` estimates to
    be the fastest. A rank that is left out takes no part, except that rank 0 receives the weights.
    *micro_batches*: the number of micro-batches that a batch is split into; None for one per rank.
    *chunks*: the number of stages per rank if interleaved; None for 2. *cuts*: the first layer of
    each stage except the first; None balances the layers' FLOPs. *flops_per_s*, *bandwidth_Bps*: if
    set, the speed of each rank in *order* and the bandwidth from each rank to the next, by which
    stages are balanced; in an experiment, "topology" stands for the topology's numbers.
    *gather_interval*: steps between gathers of all weights at rank 0, which records only those
    steps; None gathers only at the end.
    """
    ranks, m = ranks_of(order, node.size), micro_batches or node.size
    p = len(ranks)
    plan = plan_of(replica, node.size, p, m, schedule, chunks, cuts, flops_per_s, bandwidth_Bps)
    gathering = WeightGathering(node, replica, plan, ranks, gather_interval, replica.statistics())
    if node.rank not in ranks:
        return await gathering.look_on()
    line = subgroup(node, ranks)  # rank i of this subgroup holds stage i
    i = line.rank
    tasks = ORDERS[schedule](p, i, m, plan.chunks)
    part = replica.part(plan.places(i))
    mine = [LayerStage(line, *plan.stage(chunk * p + i)) for chunk in range(plan.chunks)]

    async with asyncio.TaskGroup() as sends:
        async for step, batch in steps(replica, joined=True, places=part.places):
            # Phases 1 and 2, forward and backward: the mean loss, and the gradients of this rank's parameters.
            sums = {place: torch.zeros_like(own) for place, own in zip(part.places, part.parameters, strict=True)}
            loss, stashed = await flush(line, mine, tasks, cut(batch, m), step, sums, sends)

            # Phase 3, tie: a parameter shared by several ranks gets the sum of their gradients.
            for place, holders in plan.tied(i).items():
                sums[place] = await summed(line, holders, sums[place], f"tied/{step}/{place}")

            # Phase 4, step: update this rank's parameters; a norm for clipping is that of all
            # ranks' gradients.
            squares = None
            if part.clips:
                counted = [sums[place] for place in plan.counted(i)]
                own_squares = await node.compute(part.squared_norm, counted, cost=part.norm_cost())
                squares = await naive_all_reduce(line, own_squares, f"norm/{step}")
            await node.compute(part.apply, list(sums.values()), squares, cost=part.apply_cost())
            sums.clear()

            # Phase 5, gather: rank 0 gets a whole model, which can be evaluated.
            if gathering.is_due(step):
                await gathering.send(step, part.parameters)
            if gathering.is_due(step) or node.rank != 0:
                node.record(step=step, loss=loss, stashed=stashed)
