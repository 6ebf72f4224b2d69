"""Bruck's schedules (Bruck, Ho, Kipnis, Upfal and Weathersby 1997): ceil(lg p) rounds for any number of ranks.

The barrier is that of Hensgen, Finkel and Manber (1988).
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from simcluster.collectives.exchange import exchange
from simcluster.payload import pack
from simcluster.transport import Transport


async def bruck_all_gather(node: Transport, tensor: Tensor, tag: str) -> list[Tensor]:
    """Return every rank's *tensor*, of any shape, by rank."""
    size, rank = node.size, node.rank
    held = [tensor]  # of ranks r, r+1, ...
    for step in _powers_of_two_below(size):
        outgoing = pack(*held[: size - step])
        message = await exchange(node, (rank - step) % size, (rank + step) % size, f"{tag}/{step}", outgoing)
        held += message.tensors
    return [held[(source - rank) % size] for source in range(size)]


async def bruck_reduce_scatter(node: Transport, vector: Tensor, tag: str) -> Tensor:
    """Return part r of the sum of every rank's *vector* (1-D, equal length) on rank r: the all-gather reversed."""
    size, rank = node.size, node.rank
    parts = vector.tensor_split(size)
    held = [parts[(rank + offset) % size].clone() for offset in range(size)]  # sums so far for ranks r, r+1, ...
    for step in reversed(_powers_of_two_below(size)):
        outgoing, held = pack(*held[step:]), held[:step]
        message = await exchange(node, (rank + step) % size, (rank - step) % size, f"{tag}/{step}", outgoing)
        for into, part in zip(held, message.tensors, strict=False):
            into.add_(part)
    return held[0]


async def bruck_all_to_all(node: Transport, tensors: Sequence[Tensor], tag: str) -> list[Tensor]:
    """Return tensor r of every rank's *tensors*, by rank, on rank r; distance k moves in the rounds of k's bits."""
    size, rank = node.size, node.rank
    held = [tensors[(rank + distance) % size] for distance in range(size)]
    for step in _powers_of_two_below(size):
        moving = [distance for distance in range(size) if distance & step]
        outgoing = pack(*(held[distance] for distance in moving))
        message = await exchange(node, (rank + step) % size, (rank - step) % size, f"{tag}/{step}", outgoing)
        for distance, tensor in zip(moving, message.tensors, strict=True):
            held[distance] = tensor
    return [held[(rank - source) % size] for source in range(size)]


async def bruck_barrier(node: Transport, tag: str) -> None:
    """Wait for all ranks: after the round of 2^k each rank has heard from 2^(k+1) ranks."""
    for step in _powers_of_two_below(node.size):
        await exchange(node, (node.rank + step) % node.size, (node.rank - step) % node.size, f"{tag}/{step}", None)


def _powers_of_two_below(size: int) -> list[int]:
    return [1 << bit for bit in range((size - 1).bit_length())]
