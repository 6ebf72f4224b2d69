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
from torch import Tensor

from simcluster.algorithms.facts import Facts, always, by_samples, never
from simcluster.algorithms.model_parallel.gathering import WeightGathering
from simcluster.algorithms.model_parallel.memory import pipeline_phases
from simcluster.algorithms.model_parallel.model_parallel_copies import parted_shares, pipeline_cut
from simcluster.algorithms.model_parallel.order import Order, ranks_of, takes_no_part
from simcluster.algorithms.model_parallel.pipeline_plan import ORDERS, PipelinePlan, Task, plan_of
from simcluster.algorithms.model_parallel.placement import placed
from simcluster.algorithms.steps import steps
from simcluster.collectives import naive_all_reduce, subgroup
from simcluster.payload import Payload, pack
from simcluster.transport import Transport
from simcluster.workloads import Batch, Replica
from simcluster.workloads.data.streams import micro_batches as cut
from simcluster.workloads.layers.layer_costs import LayerCost
from simcluster.workloads.layers.layers import Layer
from simcluster.workloads.layers.part import ParameterPart


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
    mine = [plan.stage(chunk * p + i) for chunk in range(plan.chunks)]

    async with asyncio.TaskGroup() as sends:
        async for step, batch in steps(replica, joined=True, places=part.places):
            # Phases 1 and 2, forward and backward: the mean loss, and the gradients of this rank's parameters.
            sums = {place: torch.zeros_like(own) for place, own in zip(part.places, part.parameters, strict=True)}
            loss, stashed = await _flush(line, plan, mine, tasks, cut(batch, m), step, sums, sends)

            # Phase 3, tie: a parameter shared by several ranks gets the sum of their gradients.
            for place, holders in plan.tied(i).items():
                sums[place] = await _sum(line, holders, sums[place], f"tied/{step}/{place}")

            # Phase 4, step: update this rank's parameters; a norm for clipping is that of all
            # ranks' gradients.
            squares = await _squares(line, part, [sums[place] for place in plan.counted(i)], f"norm/{step}")
            await node.compute(part.apply, list(sums.values()), squares, cost=part.apply_cost())
            sums.clear()

            # Phase 5, gather: rank 0 gets a whole model, which can be evaluated.
            if gathering.is_due(step):
                await gathering.send(step, part.parameters)
            if gathering.is_due(step) or node.rank != 0:
                node.record(step=step, loss=loss, stashed=stashed)


async def _flush(
    node: Transport, plan: PipelinePlan, mine: list[tuple[Layer, LayerCost]], order: list[Task], micros: list[Batch],
    step: int, sums: dict[int, Tensor], sends: asyncio.TaskGroup,
) -> tuple[float, int]:  # fmt: skip
    """Add all micro-batches' gradients to *sums*; return (the mean loss, the peak number of stashed
    micro-batches).
    """
    # Stage s is chunk s // p of rank s % p; data for a stage of the same rank stays here.
    p, i, m = node.size, node.rank, len(micros)
    kept: dict[str, Payload] = {}
    losses, stashed = [0.0] * m, 0

    def hand(s: int, tag: str, content: Payload) -> None:
        if s % p == i:
            kept[tag] = content
        else:
            sends.create_task(node.send(s % p, tag, content))  # sent while this rank continues

    async def take(s: int, tag: str) -> Payload:
        return kept.pop(tag) if s % p == i else (await node.recv(s % p, tag)).payload

    for way, chunk, k in order:
        s, (layers, cost) = chunk * p + i, mine[chunk]
        if way == "forward":
            # Phase 1: activations of micro-batch k from the previous stage, and on to the next.
            inputs = micros[k].inputs if s == 0 else (await take(s - 1, f"activations/{step}/{s}/{k}")).tensors[0]
            if s == plan.last:
                losses[k] = await node.compute(layers.loss, inputs, micros[k].targets, k, cost=cost.forward)
            else:
                outputs = await node.compute(layers.forward, inputs, k, cost=cost.forward)
                hand(s + 1, f"activations/{step}/{s + 1}/{k}", pack(outputs))
            stashed = max(stashed, sum(layers.stashed for layers, _ in mine))
        else:
            # Phase 2: their gradient and the loss from the next stage; a micro-batch is 1/m of the batch.
            behind = await take(s + 1, f"gradients/{step}/{s}/{k}") if s < plan.last else pack(loss=losses[k])
            losses[k] = behind.values["loss"]  # type: ignore[assignment]
            above = behind.tensors[0] if behind.tensors else None
            own = [sums[place] for place in layers.parameters]
            below, _ = await node.compute(layers.backward, above, k, 1 / m, own, cost=cost.backward)
            if s > 0:
                handed = [] if below is None else [below]
                hand(s - 1, f"gradients/{step}/{s - 1}/{k}", pack(*handed, loss=losses[k]))
    return sum(losses) / m, stashed


async def _squares(node: Transport, part: ParameterPart, own: list[Tensor], tag: str) -> Tensor | None:
    """Return the squared norm of all ranks' gradients if they are clipped, otherwise None."""
    if not part.clips:
        return None
    return await naive_all_reduce(node, await node.compute(part.squared_norm, own, cost=part.norm_cost()), tag)


async def _sum(node: Transport, ranks: list[int], mine: Tensor, tag: str) -> Tensor:
    """Return the sum over *ranks*, added in rank order: bit-identical on all of them."""
    async with asyncio.TaskGroup() as group:
        for rank in ranks:
            if rank != node.rank:
                group.create_task(node.send(rank, tag, mine))
        parts = [mine if rank == node.rank else (await node.recv(rank, tag)).tensor for rank in ranks]
    return torch.stack(parts).sum(0)
