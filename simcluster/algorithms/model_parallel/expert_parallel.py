"""Expert parallelism: ranks divide the experts of each layer, and tokens travel to their experts and back.

Lepikhin et al. 2020 (GShard), section 3; Fedus et al. 2021 (Switch), sections 2.1 and 2.2. A rank
trains on its own batch, with replicas of all other layers. The tokens of all ranks meet at their
experts, so that the gradients of these are whole there: only *data* groups, which hold the same experts,
sum them. A line of *pipeline* stages, or a group of *tensor* ranks, may take the place of one rank
(Narayanan et al. 2021, section 3). It trains on as many samples as all its ranks have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import torch
from pydantic import PositiveInt
from torch import Tensor

from simcluster.algorithms.facts import Facts, always, by_samples, never
from simcluster.algorithms.model_parallel.expert_layout import ExpertLayout, expert_cut, expert_shares
from simcluster.algorithms.model_parallel.expert_load import ExpertLoad
from simcluster.algorithms.model_parallel.expert_memory import expert_phases
from simcluster.algorithms.model_parallel.expert_passes import ExpertPasses
from simcluster.algorithms.model_parallel.gathering import gather
from simcluster.algorithms.model_parallel.parallel_layout import ParallelLayout
from simcluster.algorithms.model_parallel.pipeline_flush import flush, summed
from simcluster.algorithms.model_parallel.pipeline_plan import ORDERS
from simcluster.algorithms.steps import steps
from simcluster.collectives import AllReduceSchedule, all_reduce, flatten, naive_all_reduce, subgroup, unflatten
from simcluster.transport import Transport
from simcluster.workloads import Replica
from simcluster.workloads.layers.part import ParameterPart
from simcluster.workloads.optimizers import NonNegativeFinite, PositiveFinite


@Facts(
    phases=expert_phases, shares=expert_shares, cut=expert_cut, whole=never, evenly=by_samples,
    joins=always,
    stays=lambda _: "each rank holds its experts, divided for this world size",
)  # fmt: skip
async def expert_parallel(
    node: Transport,
    replica: Replica,
    *,
    layout: ParallelLayout | None = None,
    capacity_factor: PositiveFinite | None = None,
    balance_loss: NonNegativeFinite = 0.0,
    z_loss: NonNegativeFinite = 0.0,
    bias_rate: NonNegativeFinite = 0.0,
    load: ExpertLoad = None,
    merge: bool = False,
    micro_batches: PositiveInt | None = None,
    schedule: AllReduceSchedule = "ring",
    gather_interval: PositiveInt | None = None,
) -> None:
    """Train with four all-to-alls per layer of experts, and one all-reduce of all other gradients.

    *layout*: {data, pipeline, tensor, expert}, with the number of ranks as its product; by default,
    as many ranks divide the experts as can, and the others are data groups. *capacity_factor*: an
    expert takes at most this many times its equal share of the copies of all ranks' tokens; the
    others pass the layer unchanged. None drops nothing. *balance_loss*, *z_loss*: the weights of
    the two auxiliary losses of each layer. *bias_rate*: the change per step of the bias that steers
    tokens away from busy experts. *load*: "uniform", "zipf(s)", or a list; only without numerics,
    where nothing is routed. *merge*: whether a token travels to a rank once, however many of its
    experts are there, and the sum of their outputs back; sums are then by rank. *micro_batches*:
    the parts of a replica's batch, by default one per stage; capacities and auxiliary losses are
    those of a part. *schedule*: that of the all-reduce. *gather_interval*: steps between gathers of
    all weights at rank 0, which records only those steps; None gathers only at the end.
    """
    place = ExpertLayout(replica, node.rank, node.size, layout, micro_batches)
    work = ExpertPasses(node, replica, place, capacity_factor, balance_loss, z_loss, load, merge, schedule)
    line, holders = (subgroup(node, place.place.along(way)) for way in ("pipeline", "data"))
    tasks = ORDERS["1f1b"](line.size, line.rank, place.micro_batches, 1)
    part = place.part()

    async with asyncio.TaskGroup() as sends:
        async for step, batch in steps(replica, joined=place.joins, places=place.places):
            # Phases 1 and 2, forward and backward: this replica's loss, and the gradients of what the rank holds.
            sums = {at: torch.zeros_like(own) for at, own in zip(place.places, part.parameters, strict=True)}
            loss, _ = await flush(line, [work], tasks, place.micros(batch), step, sums, sends)

            # Phase 3, reduce: all replicas sum the gradients that all hold, and data groups those of their experts.
            shared = [at for at in place.places if at not in place.owners]
            own = [at for at in place.places if at in place.owners]
            for group, which in ((work.replicas, shared), (holders, own)):
                if group.size > 1 and which:
                    mine = [sums[at] for at in which]
                    tag = f"gradients/{step}" if which is shared else f"experts/{step}"
                    total = await all_reduce(group, flatten(mine), tag, schedule=schedule)
                    sums.update(zip(which, unflatten(total, mine), strict=True))
            for at, stages in place.tied.items():
                if line.rank in stages:
                    sums[at] = await summed(line, stages, sums[at], f"tied/{step}/{at}")

            # Phase 4, step.
            squares = await _squares(work, part, sums, line, step, schedule) if part.clips else None
            await node.compute(part.apply, list(sums.values()), squares, cost=part.apply_cost())
            sums.clear()
            metrics = work.settle(bias_rate)

            # Phase 5, gather: rank 0 gets a whole model, which can be evaluated.
            last = step == replica.steps or node.size == 1
            due = last or (gather_interval is not None and step % gather_interval == 0)
            if due:
                held = dict(zip(place.places, part.parameters, strict=True))
                await gather(node, replica, held, place.holders, f"weights/{step}", place.whole)
                if bias_rate:
                    await _gather_biases(node, replica, place, f"biases/{step}")
            if due or node.rank != 0:
                node.record(step=step, loss=loss, **metrics)


async def _squares(
    work: ExpertPasses, part: ParameterPart, sums: Mapping[int, Tensor], line: Transport, step: int, schedule: str
) -> Tensor:
    """Return the squared norm of all gradients. Each counts once, on however many ranks it is."""
    place, tag = work.place, f"norm/{step}"
    mine = [at for at in sums if at not in place.owners and place.stages_of[at][0] == line.rank]
    own = [sums[at] for at in sums if at in place.owners]
    total = await work.node.compute(part.squared_norm, own, cost=part.norm_cost())
    total = await all_reduce(work.ways.group, total, tag, schedule=schedule)
    if work.tensor.size > 1:
        split = part.squared_norm([sums[at] for at in mine if place.is_split(at)])
        total = await all_reduce(work.tensor, total + split, f"tensor {tag}", schedule=schedule)
    total = part.squared_norm([sums[at] for at in mine if not place.is_split(at)]) + total
    return await naive_all_reduce(line, total, f"line {tag}") if line.size > 1 else total


async def _gather_biases(node: Transport, replica: Replica, place: ExpertLayout, tag: str) -> None:
    """Send the biases of the routers of each other stage to rank 0."""
    for stage, rank in enumerate(place.at(0).place.along("pipeline")):
        first, end = place.plan.bounds[stage]
        biases = [layer.bias for number, layer in place.wholes.items() if first <= number < end]
        if not stage or not biases:
            continue
        if node.rank == rank:
            await node.send(0, tag, flatten([bias.to(replica.device) for bias in biases]))
        elif node.rank == 0:
            found = (await node.recv(rank, tag)).tensor
            for bias, new in zip(biases, unflatten(found, biases), strict=True):
                if replica.computes:
                    bias.copy_(new)
