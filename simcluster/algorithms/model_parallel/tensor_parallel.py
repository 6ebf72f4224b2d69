"""Tensor parallelism: every layer is split over all ranks.

A layer's first matrix product is split by columns, its second by rows.

Shoeybi et al. 2019 (Megatron-LM), section 3. The paper's f and g are the two sums over ranks: g
sums a layer's outputs in the forward pass, f sums its inputs' gradients in the backward pass; each
is the identity in the other pass. Attention heads are split as columns. Every rank holds and
computes all embeddings, norms and the output layer. All ranks together train one model on the
joined batches of all ranks.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import torch
from pydantic import PositiveInt
from torch import Tensor

from simcluster.algorithms.facts import Facts, always, by_samples, never
from simcluster.algorithms.model_parallel.gathering import gather
from simcluster.algorithms.model_parallel.memory import parted_shares, tensor_phases
from simcluster.algorithms.steps import resumable, steps
from simcluster.collectives import AllReduceSchedule, all_reduce
from simcluster.transport import Transport
from simcluster.workloads import Batch, Replica
from simcluster.workloads.layers.tensor_shard import ShardedLayer, ShardedLayerCost, TensorShard


@Facts(
    phases=tensor_phases,
    shares=parted_shares,
    cut=lambda replica, size, settings: replica.tensor_shard(),
    stays=lambda _: "each rank holds a shard of every layer, cut for this world size",
    whole=never,
    evenly=by_samples,
    joins=always,
    running="none",
)
async def tensor_parallel(
    node: Transport,
    replica: Replica,
    *,
    schedule: AllReduceSchedule = "ring",
    gather_interval: PositiveInt | None = None,
) -> None:
    """Train with two sums over ranks per layer: one of activations and one of their gradients.
    Gradients of weights are not summed.

    *schedule*: the schedule of the sums over ranks. *gather_interval*: the number of steps between
    gathers of all weights at rank 0, which records only those steps; None gathers only at the end.
    """
    p, shard = node.size, replica.tensor_shard()
    state, cut = resumable(replica, part=shard.part), list(shard.cuts)
    part = state.part

    async for step, batch in steps(replica, keep=state, joined=True, places=[]):
        # Phases 1 and 2, forward and backward: the loss, and the gradients of this rank's parameters.
        gradients = [torch.zeros_like(parameter) for parameter in part.parameters]
        loss = await _forward_and_backward(node, shard, batch, gradients, schedule, step)

        # Phase 3, step: replicated gradients are equal on all ranks. The norm counts them once, and the shards of all
        # ranks.
        squares = None
        if part.clips:
            same = [place for place in range(len(gradients)) if place not in shard.cuts]
            whole = part.squared_norm([gradients[place] for place in same])
            own = await node.compute(part.squared_norm, [gradients[place] for place in cut], cost=part.norm_cost())
            squares = whole + await all_reduce(node, own, f"norm/{step}", schedule=schedule)
        await node.compute(part.apply, gradients, squares, cost=part.apply_cost())
        gradients.clear()

        # Phase 4, gather: rank 0 gets a whole model, which can be evaluated.
        gathered = step == replica.steps or p == 1 or (gather_interval is not None and step % gather_interval == 0)
        if gathered:
            await _gather(node, replica, shard, f"weights/{step}")
        if gathered or node.rank != 0:
            node.record(step=step, loss=loss)


async def _forward_and_backward(
    node: Transport, shard: TensorShard, batch: Batch, gradients: list[Tensor], schedule: str, step: int
) -> float:
    """Run phases 1 and 2: add the batch's gradients to *gradients*, and return the loss."""
    costs = shard.costs(batch)
    stream = batch.inputs
    for number, (piece, cost) in enumerate(zip(shard.pieces, costs, strict=False)):
        stream = await forward_through(node, piece, cost, stream, f"g/{step}/{number}", schedule)
    loss = await node.compute(shard.last.loss, stream, batch.targets, cost=costs[-1].whole.forward)
    gradient, _ = await node.compute(shard.last.backward, cost=costs[-1].whole.backward)
    for number, (piece, cost) in reversed(list(enumerate(zip(shard.pieces, costs, strict=False)))):
        gradient = await back_through(node, piece, cost, gradient, gradients, f"f/{step}/{number}", schedule)
    return loss


async def forward_through(
    node: Transport, piece: ShardedLayer, cost: ShardedLayerCost, stream: Tensor, tag: str, schedule: str,
    name: Hashable = 0,
) -> Tensor:  # fmt: skip
    """Return whole(x), then the sum over ranks of shard(whole(x)): phase 1 of a layer, for the
    micro-batch *name*.
    """
    inputs = stream
    if piece.whole is not None:
        inputs = await node.compute(piece.whole.forward, stream, name, cost=cost.whole.forward)
    if piece.shard is None:
        return inputs
    share = await node.compute(piece.shard.forward, inputs, name, cost=cost.shard.forward)
    total = await all_reduce(node, share, tag, schedule=schedule)
    return await node.compute(piece.join, stream, total, cost=cost.join.forward)


async def back_through(
    node: Transport, piece: ShardedLayer, cost: ShardedLayerCost, gradient: Tensor | None,
    gradients: Mapping[int, Tensor] | Sequence[Tensor], tag: str, schedule: str, name: Hashable = 0,
) -> Tensor | None:  # fmt: skip
    """Return the gradient of a layer's inputs, and add those of its parameters to *gradients*: phase 2.

    The gradient passes g unchanged, then the shard, then the sum over ranks of the result.
    """
    through, after = gradient, gradient
    if piece.shard is not None:
        through, own = await node.compute(piece.shard.backward, gradient, name, cost=cost.shard.backward)
        _add(gradients, piece.shard.parameters, own)
        if through is not None:
            through = await all_reduce(node, through, tag, schedule=schedule)
    if piece.whole is not None:
        through, own = await node.compute(piece.whole.backward, through, name, cost=cost.whole.backward)
        _add(gradients, piece.whole.parameters, own)
    if piece.shard is None or after is None:
        return through
    joined, bias = await node.compute(piece.unjoin, after, through, cost=cost.join.backward)
    if bias is not None and piece.bias_place is not None:
        _add(gradients, [piece.bias_place], [bias])
    return joined


def _add(gradients: Mapping[int, Tensor] | Sequence[Tensor], places: Sequence[int], more: Sequence[Tensor]) -> None:
    for place, gradient in zip(places, more, strict=True):
        gradients[place].add_(gradient)


async def _gather(node: Transport, replica: Replica, shard: TensorShard, tag: str) -> None:
    """Send all ranks' shards of the weights to rank 0, which joins them.

    Rank 0 already has the replicated weights.
    """
    own, everyone = dict(enumerate(shard.part.parameters)), range(node.size)
    await gather(node, replica, own, lambda place: everyone if place in shard.cuts else [0], tag, shard.whole)
