"""The memory that each rank of ZeRO holds, phase by phase. See `Facts.phases`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from simcluster.algorithms.data_parallel.layer_units import cut_into_units, units_of_layers
from simcluster.algorithms.facts import Settings
from simcluster.collectives.flat import lengths_of
from simcluster.paths.spool import IN_MEMORY_BYTES
from simcluster.workloads import Replica
from simcluster.workloads.costs.memory import MemoryBytes
from simcluster.workloads.layers.held import joint_bytes


def zero_phases(replica: Replica, settings: Settings, whole: MemoryBytes, in_parts: bool) -> list[list[MemoryBytes]]:
    size, stage = len(replica.batch_sizes), settings["stage"]
    units = cut_into_units(replica)
    layers = [sum(unit.size_bytes for unit in used) for used in units_of_layers(replica, units)]
    shared = sum(replica.shapes[place].nbytes for place in replica.layers().shared())
    largest, steps = max(unit.size_bytes for unit in units), 1 + settings["staleness"]
    held = joint_bytes(replica.held(next(replica.batches())))
    found = []
    for rank in range(size):
        mine = []
        for unit in units:
            like = replica.shapes[unit.places[0]]
            numbers = unit.size_bytes // like.element_size()
            length = lengths_of(numbers, size)[rank] if stage else numbers
            mine.append(torch.empty(length, dtype=like.dtype, device="meta"))
        own = sum(vector.nbytes for vector in mine)
        replicated = whole.weights - (whole.gradients if in_parts and stage == 3 else 0)
        part = replica.pieces(mine)
        rests = replace(whole, weights=replicated + own, gradients=0, optimizer=part.state_bytes, activations=0)
        # In every sum over ranks, a part going out and one coming in.
        passing = 2 * (whole.gradients if stage < 2 else largest) // size
        if stage < 2:  # all layers' gradients are kept, the last also as it was found
            kept = steps * whole.gradients
            backward = replace(rests, gradients=kept + largest, activations=held)
            # In stage 0 a whole sum is put together from parts.
            sums = replace(rests, gradients=kept, messages=passing + (0 if stage else whole.gradients + largest))
            found.append([backward, sums])
        else:  # while the last but one arrives, each layer's gradient is held, and the next layer's weights
            moments = _moments(layers, shared, settings["prefetch"] if stage == 3 else None)
            gathered, gradients = max(moments, key=sum)
            gradients += steps * own
            backward = replace(rests, weights=rests.weights + gathered, gradients=gradients, activations=held)
            found.append([replace(backward, messages=passing)])
        if stage == 3:
            # Unit by unit, whole and in parts; rank 0 puts them into a file.
            kept = whole.gradients if rank == 0 and in_parts and whole.gradients <= IN_MEMORY_BYTES else 0
            found[-1].append(replace(rests, gradients=own, messages=2 * largest + kept))
        elif stage:  # all units are gathered at once, each put together from parts
            found[-1].append(replace(rests, gradients=own, messages=whole.gradients + largest))
        found[-1].append(replace(rests, gradients=own, scratch=part.scratch_bytes))
    return found


def _moments(layers: Sequence[int], shared: int, prefetch: int | None) -> list[tuple[int, int]]:
    """Return, for each layer forward and then backward, the bytes of gathered weights and of gradients.

    Gathered are the layer in use and *prefetch* ahead of it, and it is there once more until it is in its place; none
    is if *prefetch* is None. A gradient is there once more as a vector, which is summed until the next one is complete.
    Those of *shared* parameters wait for the first layer that uses them.
    """
    count, moments = len(layers), []
    passes = [*layers, *reversed(layers)]
    for at, layer in enumerate(passes):
        ahead = 0 if prefetch is None else sum(passes[at + 1 : at + 1 + prefetch])
        gathered = 0 if prefetch is None else ahead + layer
        if at < count:
            moments.append((gathered + (0 if prefetch is None else layer), 0))
            continue
        summed = passes[at - 1] + shared if at > count else 0
        moments += [(gathered, layer + summed), (ahead, 2 * layer + summed)]
    return moments
