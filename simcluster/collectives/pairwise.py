"""Pairwise schedules: in round k each rank sends to the k-th rank after it, so no two messages share a link."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from simcluster.collectives.exchange import exchange
from simcluster.collectives.flat import summed
from simcluster.transport import Transport


async def pairwise_all_to_all(node: Transport, tensors: Sequence[Tensor], tag: str) -> list[Tensor]:
    """Return tensor r of every rank's *tensors*, by rank, on rank r."""
    size, rank = node.size, node.rank
    found = {rank: tensors[rank]}
    for step in range(1, size):
        to, source = (rank + step) % size, (rank - step) % size
        found[source] = (await exchange(node, to, source, f"{tag}/{step}", tensors[to])).tensor
    return [found[source] for source in range(size)]


async def pairwise_reduce_scatter(node: Transport, vector: Tensor, tag: str) -> Tensor:
    """Return part r of the sum of every rank's *vector* (1-D, equal length) on rank r, summed in rank order."""
    return summed(await pairwise_all_to_all(node, vector.tensor_split(node.size), tag))
