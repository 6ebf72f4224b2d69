"""The memory that each rank of a partitioned model holds in each phase, and its share of the model. See `Facts`."""

from __future__ import annotations

from dataclasses import replace

from simcluster.algorithms.facts import Settings, StateShares, all_reduce_messages
from simcluster.algorithms.model_parallel.gathering import gathering_bytes
from simcluster.algorithms.model_parallel.order import ranks_of, stages_of
from simcluster.algorithms.model_parallel.pipeline_plan import ORDERS, PipelinePlan, plan_by
from simcluster.workloads import Replica
from simcluster.workloads.costs.memory import MemoryBytes
from simcluster.workloads.data.streams import micro_batches as cut
from simcluster.workloads.layers.activations import Held, joint_bytes


def pipeline_phases(
    replica: Replica, settings: Settings, whole: MemoryBytes, in_parts: bool
) -> list[list[MemoryBytes]]:
    size = len(replica.batch_sizes)
    ranks, m = ranks_of(settings["order"], size), settings["micro_batches"] or size
    plan = plan_by(settings, replica, size, len(ranks))
    batch = next(replica.joined_batches())
    held, whole = replica.held(cut(batch, m)[0]), replace(whole, batch=batch.inputs.nbytes + batch.targets.nbytes)
    looks_on = MemoryBytes(whole.weights if not in_parts else whole.weights - whole.gradients, 0, 0, 0, 0, whole.data)
    found = [[looks_on] for _ in range(size)]
    for i, rank in enumerate(ranks):
        found[rank] = _of_stages(replica, plan, i, m, held, whole, settings, in_parts)
    if tuple(ranks) != (0,):
        others = {place for place, holders in plan.holders().items() if 0 not in [ranks[i] for i in holders]}
        messages = gathering_bytes(replica, others)
        found[0].append(replace(found[0][0], gradients=0, activations=0, messages=messages))
    return found


def _of_stages(
    replica: Replica,
    plan: PipelinePlan,
    i: int,
    m: int,
    held: list[Held],
    whole: MemoryBytes,
    settings: Settings,
    in_parts: bool,
) -> list[MemoryBytes]:
    """Return the memory that rank *i* of the pipeline holds while it trains its stages i, p + i,
    ..., and during its optimizer step.

    Sending the weights takes less memory.
    """
    mine = [plan.bounds[chunk * plan.p + i] for chunk in range(plan.chunks)]
    places, part = plan.places(i), replica.part(plan.places(i))
    sizes, stashed = [replica.shapes[place].nbytes for place in places], [joint_bytes(held[a:b]) for a, b in mine]
    own = sum(sizes)
    now = most = 0
    for way, chunk, _ in ORDERS[settings["schedule"]](plan.p, i, m, plan.chunks):
        now += stashed[chunk] if way == "forward" else -stashed[chunk]
        most = max(most, now)
    # Besides the sums, the rank holds one parameter's gradient, which is added to its sum as soon
    # as it is computed.
    added = max(sizes, default=0)
    # Messages are activations or their gradients: one goes out while one comes in.
    passed = [sum(plan.costs[b - 1].output_bytes for b in bounds if b) for bounds in mine]
    training = replace(
        whole,
        weights=whole.weights - whole.gradients + own if in_parts else whole.weights,
        gradients=own + added,
        optimizer=part.state_bytes,
        activations=most,
        messages=max(passed),
    )
    return [training, replace(training, gradients=own, activations=0, messages=0, scratch=part.scratch_bytes)]


def tensor_phases(replica: Replica, settings: Settings, whole: MemoryBytes, in_parts: bool) -> list[list[MemoryBytes]]:
    size, shard = len(replica.batch_sizes), replica.tensor_shard()
    batch = next(replica.joined_batches())
    sizes = [parameter.nbytes for parameter in shard.part.parameters]
    own, cut = sum(sizes), sum(sizes[place] for place in shard.cuts)
    layers = [layer for piece in shard.pieces for layer in (piece.whole, piece.shard) if layer] + [shard.last]
    added = max(sum(sizes[place] for place in layer.parameters) for layer in layers)
    # During a sum over ranks, this rank holds its share, the sum and the messages.
    costs = shard.costs(batch)
    summed = max((cost.shard.output_bytes for cost in costs), default=0)
    streams = sum(cost.join.output_bytes for cost in costs)
    untrained = whole.weights - whole.gradients
    training = replace(
        whole,
        weights=(untrained if in_parts else whole.weights) + (own if in_parts else cut),
        gradients=own + added,
        optimizer=shard.part.state_bytes,
        activations=joint_bytes(shard.held(batch)) + streams,
        batch=batch.inputs.nbytes + batch.targets.nbytes,
        messages=summed + int(all_reduce_messages(summed, size, settings["schedule"])),
    )
    step = replace(training, gradients=own, activations=0, messages=0, scratch=shard.part.scratch_bytes)
    if size == 1:
        return [[training, step]]
    # Rank 0 also holds one parameter while it joins its parts.
    joined = max((replica.shapes[place].nbytes for place in shard.cuts), default=0)
    gathers = replace(step, gradients=0, scratch=0, messages=gathering_bytes(replica, shard.cuts) + joined)
    return [[training, step, gathers], *([training, step] for _ in range(size - 1))]


def parted_shares(size: int, settings: Settings) -> StateShares:
    # This is an estimate: stages are balanced by work, not by bytes, and with tensor parallelism
    # every rank holds the layers that are not split.
    return StateShares(*[1.0 / stages_of(size, settings)] * 3)


def pipeline_cut(replica: Replica, size: int, settings: Settings) -> None:
    plan_by(settings, replica, size, len(ranks_of(settings["order"], size)))
