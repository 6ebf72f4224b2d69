"""ZeRO: data parallelism without redundant state; each rank keeps only its part of the state.

Rajbhandari et al. 2020, section 5. Stage 1 (P_os) partitions the optimizer state, stage 2 (P_os+g) also the gradients,
stage 3 (P_os+g+p) also the parameters; stage 0 partitions nothing. With N_d ranks and Psi bytes of parameters, a rank
sends 2 (N_d-1)/N_d Psi per step up to stage 2 and 3 (N_d-1)/N_d Psi in stage 3 (section 7). All stages take the same
steps as plain data parallelism. The bound on staleness is that of SmolCluster's FSDP.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from pydantic import NonNegativeInt, PositiveInt
from torch import Tensor

from simcluster.algorithms.data_parallel.data_parallel_copies import zero_shares
from simcluster.algorithms.data_parallel.zero_compression import PartCodecs, check_compression
from simcluster.algorithms.data_parallel.zero_memory import zero_phases
from simcluster.algorithms.data_parallel.zero_sums import Gradient, Sums
from simcluster.algorithms.data_parallel.zero_weights import HeldBytes, ZeroWeights
from simcluster.algorithms.facts import Facts, always, by_samples
from simcluster.algorithms.steps import Lag, Late, resumable, steps
from simcluster.collectives import ScheduleOf, flatten, naive_all_reduce, share_statistics
from simcluster.compression import Compression
from simcluster.transport import Transport
from simcluster.workloads import Batch, Replica
from simcluster.workloads.layers.part import ParameterPart
from simcluster.workloads.shares import weight_of


@Facts(
    phases=zero_phases, shares=zero_shares, layered=always, whole=lambda settings: settings.get("stage") != 3,
    evenly=by_samples, joins=always, running="sums", world=lambda size, settings: check_compression(settings),
)  # fmt: skip
async def zero(
    node: Transport,
    replica: Replica,
    *,
    stage: Literal[0, 1, 2, 3] = 1,
    reduce: Annotated[str, ScheduleOf("reduce_scatter", "direct")] = "ring",
    gather: Annotated[str, ScheduleOf("all_gather", "broadcast")] = "ring",
    prefetch: NonNegativeInt = 1,
    staleness: NonNegativeInt = 0,
    gather_interval: PositiveInt | None = None,
    compression: Compression = "none",
) -> None:
    """For each batch, compute a gradient, sum it at the owners of its parts, and let each owner
    take an optimizer step on its part.

    *reduce*: how gradients reach their owners: by a schedule of the reduce-scatter, or `direct`:
    every rank sends to all owners at once, and an owner adds in rank order. *gather*: how
    parameters return: by a schedule of the all-gather; with `broadcast` each owner sends to all
    ranks. *prefetch*: in stage 3, the number of layers gathered ahead of use. *staleness*: each
    gradient is taken at weights that lack exactly this many of the latest updates, so a rank may be
    that many steps ahead of another. *gather_interval*: in stage 3 no rank has a whole model to
    evaluate except at every *gather_interval*-th step and at the end; rank 0 records only those
    steps. *compression*: the compression of gradients on their way to the owners, which each part
    takes directly, whatever *reduce* says; weights travel whole.
    """
    kind = check_compression({"compression": compression, "reduce": reduce})
    n_d, held = node.size, HeldBytes()
    weights = ZeroWeights(node, replica, stage > 0, stage == 3, gather, prefetch, held)
    owner = replica.pieces(weights.mine)
    held.take("optimizer", owner.state_bytes)
    codecs = PartCodecs(kind, node, replica, weights.units) if kind is not None and n_d > 1 else None
    held.take("optimizer", codecs.state_bytes if codecs is not None else 0)
    state = resumable(replica, owner=owner, **({} if codecs is None else {"codecs": codecs}))

    async def update(late: Late) -> None:
        # Phase 4, step: each owner updates its part of the weights with its part of the mean gradient.
        (loss,) = late.note
        step = late.step
        mean = [total.div_(n_d) for total in await late.results()]
        squares = await _squared_norm(node, owner, mean, stage, f"norm/{step}") if owner.clips else None
        await node.compute(owner.apply, mean, squares, cost=owner.apply_cost())
        held.give("gradients", sum(part.nbytes for part in mean))

        # Phase 5, gather: every part to every rank; in stage 3 layer by layer, on demand.
        whole = stage < 3 or step == replica.steps or (gather_interval is not None and step % gather_interval == 0)
        if whole:
            await weights.share(f"after {step}")
            await share_statistics(node, f"statistics/{step}")
        if whole or node.rank:
            stale = {"staleness": min(staleness, step - 1)} if staleness else {}
            node.record(step=step, loss=loss, **stale, **(held.metrics() if step == replica.steps else {}))

    async with asyncio.TaskGroup() as group:
        sums = Sums(node, weights.units, reduce, stage, group, replica.steps - replica.done, held, codecs)
        lag = Lag(replica, staleness, again=sums.again)
        async for step, batch in steps(replica, keep=state, lag=lag, places=[] if stage == 3 else None):
            weights.expect(step, group)
            lag.lead()
            loss = await _forward(node, replica, batch, weights)
            lag.send_off(await _backward(node, replica, batch, weights, Gradient(sums, step, loss)))
            for late in lag.due(step):
                await update(late)
        for late in lag.rest():
            await update(late)
    if staleness:
        node.record(step=replica.steps, **lag.leads())


async def _forward(node: Transport, replica: Replica, batch: Batch, weights: ZeroWeights) -> float:
    """Run phase 1, the forward pass; return the loss.

    Each layer's parameters are present only while that layer runs.
    """
    *inner, last = zip(replica.layers(), replica.layer_costs(batch), strict=True)
    value = batch.inputs
    for layer, cost in inner:
        async with weights.present(layer):
            value = await node.compute(layer.forward, value, cost=cost.forward)
    layer, cost = last
    async with weights.present(layer):
        return await node.compute(layer.loss, value, batch.targets, cost=cost.forward)


async def _backward(
    node: Transport, replica: Replica, batch: Batch, weights: ZeroWeights, gradient: Gradient
) -> Gradient:
    """Run phases 2 and 3: compute each layer's gradient and sum it at its owners.

    From stage 2 on, each unit's gradient is sent as soon as it is complete, instead of at the end
    of the backward pass.
    """
    passing: Tensor | None = None
    weight = weight_of(replica)
    found: dict[int, Tensor] = {}
    for layer, cost in reversed(list(zip(replica.layers(), replica.layer_costs(batch), strict=True))):
        async with weights.present(layer):
            passing, gradients = await node.compute(layer.backward, passing, 0, weight, cost=cost.backward)
        for place, new in zip(layer.parameters, gradients, strict=True):
            found[place] = found[place].add_(new) if place in found else gradient.keep(new)
        # Without this, the list would keep the gradients alive during the next layer's backward
        # pass.
        gradients.clear()
        for unit in (unit for unit in weights.units if unit.layer == layer.number):  # complete with this layer
            await gradient.leave(unit, flatten([found.pop(place) for place in unit.places]))
    gradient.leave_all()
    return gradient


async def _squared_norm(node: Transport, owner: ParameterPart, mean: list[Tensor], stage: int, tag: str) -> Tensor:
    """Return the squared norm of the whole gradient. It is added up owner by owner, so it is
    bit-identical in every stage.
    """
    if stage > 0:
        own = await node.compute(owner.squared_norm, mean, cost=owner.norm_cost())
        return await naive_all_reduce(node, own, tag)

    def of_all_parts() -> Tensor:
        parts = zip(*(vector.tensor_split(node.size) for vector in mean), strict=True)
        first, *others = [owner.squared_norm(part) for part in parts]
        return sum(others, start=first)

    return await node.compute(of_all_parts, cost=owner.norm_cost())
