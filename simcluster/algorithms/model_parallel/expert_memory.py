"""The memory that each rank of expert parallelism holds in each phase. See `Facts.phases`."""

from __future__ import annotations

from dataclasses import replace

from simcluster.algorithms.facts import Settings, all_reduce_messages
from simcluster.algorithms.model_parallel.expert_layout import ExpertLayout
from simcluster.algorithms.model_parallel.expert_load import counts_by, shares_of
from simcluster.algorithms.model_parallel.gathering import gathering_bytes
from simcluster.workloads import Replica
from simcluster.workloads.costs.memory import MemoryBytes
from simcluster.workloads.layers.activations import joint_bytes


def expert_phases(replica: Replica, settings: Settings, whole: MemoryBytes, in_parts: bool) -> list[list[MemoryBytes]]:
    size = len(replica.batch_sizes)
    held = joint_bytes(replica.held(next(replica.batches())))
    first = ExpertLayout(replica, 0, size, settings["layout"])
    places = [first.at(rank) for rank in range(size)]
    found = [_of_rank(replica, place, settings, whole, held, in_parts) for place in places]
    if size > 1:
        away = {at for at, owner in places[0].owners.items() if owner}
        gathers = replace(found[0][1], gradients=0, scratch=0, messages=gathering_bytes(replica, away))
        found[0].append(gathers)
    return found


def _of_rank(
    replica: Replica, place: ExpertLayout, settings: Settings, whole: MemoryBytes, held: int, in_parts: bool
) -> list[MemoryBytes]:
    """Return the memory of a rank in its two passes, in the all-reduce and its step."""
    part = replica.part(place.places)
    own = sum(replica.shapes[at].nbytes for at in place.places)
    shared = sum(replica.shapes[at].nbytes for at in place.places if at not in place.owners)
    weights = whole.weights - whole.gradients + own if in_parts else whole.weights
    # A layer's dispatched copies, as they leave and as they arrive.
    copies = max(_copies_bytes(replica, place, settings, number) for number in place.wholes)
    training = replace(
        whole, weights=weights, gradients=own, optimizer=part.state_bytes, activations=held, messages=copies
    )
    summed = shared + int(all_reduce_messages(shared, len(replica.batch_sizes), settings["schedule"]))
    reduces = replace(training, activations=0, messages=summed)
    return [training, reduces, replace(reduces, messages=0, scratch=part.scratch_bytes)]


def _copies_bytes(replica: Replica, place: ExpertLayout, settings: Settings, number: int) -> int:
    """Return the bytes of the copies that leave the rank and those that arrive, for layer *number*.

    If the load is not known, it is uniform.
    """
    layer, batch = place.wholes[number], next(replica.batches())
    output_bytes = replica.layer_costs(batch)[number].output_bytes
    tokens = output_bytes // replica.shapes[0].element_size() // layer.router.in_features
    sizes = replica.batch_sizes
    copies = [tokens * layer.active * size // replica.batch_size for size in sizes]
    counts = counts_by(shares_of(settings["load"], len(layer.experts), layer.active), copies)
    arriving = int(counts[place.group][:, place.own(layer)].sum())
    return (copies[place.rank] + arriving) * output_bytes // tokens
