"""Pairwise schedules: in round k each rank sends to the k-th rank after it, so no two messages share a link."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from torch import Tensor

from simcluster.collectives.exchange import exchange, run_rounds, skipped
from simcluster.collectives.flat import length_of, summed
from simcluster.rounds import Formula, Ranks, Rounds
from simcluster.transport import Transport


async def pairwise_all_to_all(node: Transport, tensors: Sequence[Tensor], tag: str) -> list[Tensor]:
    """Return tensor r of every rank's *tensors*, by rank, on rank r."""
    size, rank = node.size, node.rank
    found, over = {rank: tensors[rank]}, 0
    if all(tensor.is_meta and tensor.dim() == 1 and tensor.dtype is tensors[0].dtype for tensor in tensors):
        lengths = np.array([len(tensor) for tensor in tensors])
        name = ("all-to-all", lengths.tobytes())
        over = await skipped(node, _rounds(size, tensors[0], tag, name, lambda _, to: lengths[to]))
    for step in range(1, size):
        to, source = (rank + step) % size, (rank - step) % size
        if step <= over:
            found[source] = tensors[rank]  # all ranks' are of one shape, and have no values
        else:
            found[source] = (await exchange(node, to, source, f"{tag}/{step}", tensors[to])).tensor
    return [found[source] for source in range(size)]


async def pairwise_reduce_scatter(node: Transport, vector: Tensor, tag: str) -> Tensor:
    """Return part r of the sum of every rank's *vector* (1-D, equal length) on rank r, summed in rank order."""
    size, length = node.size, len(vector)
    if vector.is_meta:
        name = ("pairwise", length)
        await run_rounds(node, _rounds(size, vector, tag, name, lambda _, to: length_of(to, length, size)))
        return vector.new_empty(length_of(node.rank, length, size))
    return summed(await pairwise_all_to_all(node, vector.tensor_split(size), tag))


def _rounds(size: int, vector: Tensor, tag: str, name: Hashable, length: Formula) -> Rounds:
    """Return the same messages without values, as long as *length* says of (round, the rank that each is for)."""

    def to(number: int, rank: Ranks) -> Ranks:
        return (rank + number + 1) % size

    return Rounds(
        name,
        size - 1,
        to=to,
        source=lambda number, rank: (rank - number - 1) % size,
        elements=lambda number, rank: length(number, to(number, rank)),
        tag=lambda number: f"{tag}/{number + 1}",
        vector=vector,
        is_once=True,
    )
