"""Bruck's schedules (Bruck, Ho, Kipnis, Upfal and Weathersby 1997): ceil(lg p) rounds for any number of ranks.

The barrier is that of Hensgen, Finkel and Manber (1988).
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from simcluster.collectives.exchange import exchange, skipped
from simcluster.payload import pack
from simcluster.rounds import Rounds
from simcluster.transport import Transport


async def bruck_all_gather(node: Transport, tensor: Tensor, tag: str) -> list[Tensor]:
    """Return every rank's *tensor*, of any shape, by rank."""
    size, rank = node.size, node.rank
    held, over = [tensor], 0  # of ranks r, r+1, ...
    if tensor.is_meta and tensor.dim() == 1:
        over = await skipped(node, _gather_rounds(size, tensor, tag))
    for number, step in enumerate(_powers_of_two_below(size)):
        if number < over:
            held += [tensor] * min(step, size - step)  # all ranks' are of one shape, and have no values
            continue
        outgoing = pack(*held[: size - step])
        message = await exchange(node, (rank - step) % size, (rank + step) % size, f"{tag}/{step}", outgoing)
        held += message.tensors
    return [held[(source - rank) % size] for source in range(size)]


def _gather_rounds(size: int, tensor: Tensor, tag: str) -> Rounds:
    """Return the all-gather's messages if all ranks' tensors are equally long: *name* differs otherwise."""
    length = len(tensor)
    return Rounds(
        ("bruck all-gather", length),
        (size - 1).bit_length(),
        to=lambda number, rank: (rank - (1 << number)) % size,
        source=lambda number, rank: (rank + (1 << number)) % size,
        elements=lambda number, rank: length,
        tag=lambda number: f"{tag}/{1 << number}",
        vector=tensor,
        is_once=True,
        tensors=lambda number: min(1 << number, size - (1 << number)),
    )


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
