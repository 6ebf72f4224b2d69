"""The memory that each rank of ZeRO holds in each phase. See `Facts.phases`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from simcluster.algorithms.data_parallel.layer_units import cut_into_units, units_of_layers
from simcluster.algorithms.data_parallel.zero_compression import residual_bytes
from simcluster.algorithms.facts import Settings
from simcluster.collectives.flat import lengths_of
from simcluster.compression import compressor
from simcluster.paths.spool import IN_MEMORY_BYTES
from simcluster.workloads import Replica
from simcluster.workloads.costs.memory import MemoryBytes
from simcluster.workloads.layers.activations import joint_bytes


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
        kind = compressor(settings["compression"]) if size > 1 else None
        optimizer = part.state_bytes + residual_bytes(kind, sum(shape.numel() for shape in replica.shapes))
        rests = replace(whole, weights=replicated + own, gradients=0, optimizer=optimizer, activations=0)
        # Every sum over ranks has one part going out and one coming in; compressed, at most half of
        # all parts out and half of one from every rank in.
        passing = (2 if kind is None else size) * (whole.gradients if stage < 2 else largest) // size
        # All layers' gradients are kept; the newest exists twice, as tensors and as a vector.
        if stage < 2:
            kept = steps * whole.gradients
            backward = replace(rests, gradients=kept + largest, activations=held)
            # In stage 0, every rank also joins the parts into a whole sum.
            sums = replace(rests, gradients=kept, messages=passing + (0 if stage else whole.gradients + largest))
            found.append([backward, sums])
        else:  # a gradient is held until its sum has arrived, while the next layer runs
            moments = _moments(layers, shared, settings["prefetch"] if stage == 3 else None)
            gathered, gradients = max(moments, key=sum)
            gradients += steps * own
            backward = replace(rests, weights=rests.weights + gathered, gradients=gradients, activations=held)
            found.append([replace(backward, messages=passing)])
        if stage == 3:
            # Units are gathered one by one. Each is held both in parts and joined, until rank 0 has
            # written it to a file.
            kept = whole.gradients if rank == 0 and in_parts and whole.gradients <= IN_MEMORY_BYTES else 0
            found[-1].append(replace(rests, gradients=own, messages=2 * largest + kept))
        elif stage:  # all units are gathered at once, and each is joined from parts
            found[-1].append(replace(rests, gradients=own, messages=whole.gradients + largest))
        found[-1].append(replace(rests, gradients=own, scratch=part.scratch_bytes))
    return found


def _moments(layers: Sequence[int], shared: int, prefetch: int | None) -> list[tuple[int, int]]:
    """Return (bytes of gathered weights, bytes of gradients) for each layer, forward and then
    backward.

    Gathered weights are those of the layer in use and of *prefetch* layers ahead. While the weights
    of the layer in use are copied into place, they exist twice. If *prefetch* is None, nothing is
    gathered. A gradient also exists as a vector, which is being summed until the next gradient is
    complete. *shared* is the size in bytes of the shared parameters, whose gradients are complete
    only after the backward pass of the first layer that uses them.
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
