"""The memory that each rank of expert parallelism holds in each phase. See `Facts.phases`."""

from __future__ import annotations

from dataclasses import replace

from simcluster.algorithms.facts import Settings, all_reduce_messages
from simcluster.algorithms.model_parallel.expert_layout import ExpertLayout
from simcluster.algorithms.model_parallel.expert_load import counts_by, shares_of
from simcluster.algorithms.model_parallel.gathering import gathering_bytes
from simcluster.workloads import Batch, Replica
from simcluster.workloads.costs.memory import MemoryBytes
from simcluster.workloads.layers.activations import joint_bytes
from simcluster.workloads.layers.experts import ExpertLayer


def expert_phases(replica: Replica, settings: Settings, whole: MemoryBytes, in_parts: bool) -> list[list[MemoryBytes]]:
    size = len(replica.batch_sizes)
    first = ExpertLayout(replica, 0, size, settings["layout"], settings["micro_batches"])
    if first.joins:
        batch = next(replica.joined_batches())
        whole = replace(whole, batch=batch.inputs.nbytes + batch.targets.nbytes)
    known: dict[tuple[int, ...], list[MemoryBytes]] = {}
    found = []
    for place in map(first.at, range(size)):
        # Tensor ranks need the same.
        key = place.stage, place.number
        if key not in known:
            known[key] = _of_rank(replica, place, settings, whole, in_parts)
        found.append(list(known[key]))
    if size > 1:
        others = first.owners | {at: stages[0] for at, stages in first.stages_of.items() if stages[0]}
        away = {at for at in first.stages_of if others.get(at) or first.is_split(at)}
        gathers = replace(found[0][1], gradients=0, scratch=0, messages=gathering_bytes(replica, away))
        found[0].append(gathers)
    return found


def _of_rank(
    replica: Replica, place: ExpertLayout, settings: Settings, whole: MemoryBytes, in_parts: bool
) -> list[MemoryBytes]:
    """Return the memory of a rank in its two passes, in the all-reduce and its step."""
    part = place.part()
    micro = next(replica.joined_batches() if place.joins else replica.batches())
    (micro, *_) = place.micros(micro)
    sizes = {at: place.shape(at).nbytes for at in place.places}
    own = sum(sizes.values())
    shared = sum(size for at, size in sizes.items() if at not in place.owners)
    weights = whole.weights - whole.gradients + own if in_parts else whole.weights
    # A layer's dispatched copies, as they leave and as they arrive; a rank stashes one micro-batch per stage behind it.
    first, end = place.plan.bounds[place.stage]
    outputs = [cost.output_bytes for cost in replica.layer_costs(micro)]
    alike = {(len(layer.experts), layer.active, outputs[number]): layer
             for number, layer in place.wholes.items() if first <= number < end}  # fmt: skip
    copies = max((_copies_bytes(replica, place, settings, layer, of) for (*_, of), layer in alike.items()), default=0)
    stashed = min(place.plan.p - place.stage, place.micro_batches) * _held_bytes(replica, place, micro)
    training = replace(
        whole, weights=weights, gradients=own, optimizer=part.state_bytes, activations=stashed, messages=copies
    )
    summed = shared + int(all_reduce_messages(shared, place.counts["data"] * place.expert, settings["schedule"]))
    reduces = replace(training, activations=0, messages=summed)
    return [training, reduces, replace(reduces, messages=0, scratch=part.scratch_bytes)]


def _held_bytes(replica: Replica, place: ExpertLayout, micro: Batch) -> int:
    """Return the bytes of the activations that a stage holds of a micro-batch."""
    first, end = place.plan.bounds[place.stage]
    held = replica.held(micro)[first:end]
    if place.shard is None:
        return joint_bytes(held)
    # A tensor rank holds the whole of its layers of experts, which is a bound, and of others its share.
    pieces = place.shard.pieces
    owners = [number for number, piece in enumerate(pieces) for one in (piece.whole, piece.shard) if one is not None]
    entries = place.shard.held(micro)[: len(owners)]  # the last one computes the loss
    return joint_bytes([of for number, of in zip(owners, entries, strict=True) if first <= number < end])


def _copies_bytes(
    replica: Replica, place: ExpertLayout, settings: Settings, layer: ExpertLayer, output_bytes: int
) -> int:
    """Return the bytes of the copies that leave the rank and those that arrive, for *layer*, whose
    output has *output_bytes*.

    If the load is not known, it is uniform.
    """
    sizes = place.sizes
    tokens = output_bytes // replica.shapes[0].element_size() // layer.router.in_features
    copies = [tokens * layer.active * size // sizes[place.number] for size in sizes]
    counts = counts_by(shares_of(settings["load"], len(layer.experts), layer.active), copies)
    arriving = int(counts[list(place.peers)][:, place.own(layer)].sum())
    return (copies[place.number] + arriving) * output_bytes // tokens
