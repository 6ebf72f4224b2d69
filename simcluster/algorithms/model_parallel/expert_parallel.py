"""Expert parallelism: ranks divide the experts of each layer, and tokens travel to their experts and back.

Lepikhin et al. 2020 (GShard), section 3; Fedus et al. 2021 (Switch), sections 2.1 and 2.2. A rank
trains on its own batch, with replicas of all other layers. The tokens of all ranks meet at their
experts, so that the gradients of these are whole there: only *data* groups, which hold the same experts,
sum them.
"""

from __future__ import annotations

import torch
from pydantic import PositiveInt

from simcluster.algorithms.facts import Facts, always, by_samples, never
from simcluster.algorithms.model_parallel.expert_layout import ExpertLayout, ParallelLayout, expert_cut, expert_shares
from simcluster.algorithms.model_parallel.expert_load import ExpertLoad
from simcluster.algorithms.model_parallel.expert_memory import expert_phases
from simcluster.algorithms.model_parallel.expert_passes import ExpertPasses
from simcluster.algorithms.model_parallel.gathering import gather
from simcluster.algorithms.model_parallel.routed_tokens import RoutedTokens
from simcluster.algorithms.steps import steps
from simcluster.collectives import AllReduceSchedule, all_reduce, flatten, subgroup, unflatten
from simcluster.transport import Transport
from simcluster.workloads import Replica
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
    schedule: AllReduceSchedule = "ring",
    gather_interval: PositiveInt | None = None,
) -> None:
    """Train with four all-to-alls per layer of experts, and one all-reduce of all other gradients.

    *layout*: {data, expert}, with the number of ranks as its product; by default, as many ranks divide
    the experts as can. *capacity_factor*: an expert takes at most this many times its equal share
    of the copies of all ranks' tokens; the others pass the layer unchanged. None drops nothing.
    *balance_loss*, *z_loss*: the weights of the two auxiliary losses of each layer. *bias_rate*:
    the change per step of the bias that steers tokens away from busy experts. *load*:
    "uniform", "zipf(s)", or a list; only without numerics, where nothing is routed. *merge*: whether a
    token travels to a rank once, however many of its experts are there, and the sum of their outputs
    back; sums are then by rank. *schedule*: that of the all-reduce. *gather_interval*: steps between
    gathers of all weights at rank 0, which records only those steps; None gathers only at the end.
    """
    place = ExpertLayout(replica, node.rank, node.size, layout)
    work = ExpertPasses(node, replica, place, capacity_factor, balance_loss, z_loss, load, merge)
    part = replica.part(place.places)

    async for step, batch in steps(replica, places=part.places):
        # Phases 1 and 2, forward and backward: this rank's loss, and the gradients of what it holds.
        sums = {at: torch.zeros_like(own) for at, own in zip(part.places, part.parameters, strict=True)}
        routed: dict[int, RoutedTokens] = {}
        loss = await work.forward(batch, step, routed)
        await work.backward(batch, step, routed, sums)

        # Phase 3, reduce: all ranks sum the gradients that all hold, and data groups those of their experts.
        shared = [at for at in part.places if at not in place.owners]
        own = [at for at in part.places if at in place.owners]
        for group, which in ((node, shared), (subgroup(node, place.holders), own)):
            if group.size > 1:
                mine = [sums[at] for at in which]
                tag = f"gradients/{step}" if which is shared else f"experts/{step}"
                total = await all_reduce(group, flatten(mine), tag, schedule=schedule)
                sums.update(zip(which, unflatten(total, mine), strict=True))

        # Phase 4, step: the norm counts what all ranks hold once, and each expert once.
        squares = None
        if part.clips:
            whole = part.squared_norm([sums[at] for at in shared])
            of_own = await node.compute(part.squared_norm, [sums[at] for at in own], cost=part.norm_cost())
            squares = whole + await all_reduce(work.ways.group, of_own, f"norm/{step}", schedule=schedule)
        await node.compute(part.apply, list(sums.values()), squares, cost=part.apply_cost())
        sums.clear()
        for tokens in routed.values():
            tokens.shift(bias_rate)

        # Phase 5, gather: rank 0 gets a whole model, which can be evaluated.
        due = step == replica.steps or node.size == 1 or (gather_interval is not None and step % gather_interval == 0)
        if due:
            held = dict(zip(part.places, part.parameters, strict=True))
            await gather(
                node, replica, held, lambda at: [place.owners.get(at, 0)], f"weights/{step}", lambda _, parts: parts[0]
            )
        if due or node.rank != 0:
            every = [tokens.metrics() for tokens in routed.values()]
            means = {name: sum(found[name] for found in every) / len(every) for name in every[0]}
            node.record(step=step, loss=loss, **means)
