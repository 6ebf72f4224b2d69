"""Bruck's schedules (Bruck, Ho, Kipnis, Upfal and Weathersby 1997): ceil(lg p) rounds for any number of ranks.

The barrier is by Hensgen, Finkel and Manber (1988).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from torch import Tensor

from simcluster.collectives.exchange import exchange, run_rounds
from simcluster.collectives.held_parts import HeldParts
from simcluster.collectives.operators import Combine, plus
from simcluster.payload import pack
from simcluster.rounds import Rounds
from simcluster.transport import Transport


async def bruck_all_gather(node: Transport, tensor: Tensor, tag: str) -> list[Tensor]:
    """Return every rank's *tensor*, of any shape, in rank order. A rank begins with its own tensor,
    and each round up to doubles the number of tensors that it holds.
    """
    held = HeldParts({node.rank: tensor}, like=tensor)
    await run_rounds(node, _gather_rounds(node.size, tensor.numel()).under(tag, tensor), held)
    return [held[source] for source in range(node.size)]


@lru_cache(maxsize=64)
def _gather_rounds(size: int, length: int) -> Rounds:
    def tensors(number: int) -> int:
        return min(1 << number, size - (1 << number))

    return Rounds(
        ("bruck all-gather", length),
        (size - 1).bit_length(),
        to=lambda number, rank: (rank - (1 << number)) % size,
        source=lambda number, rank: (rank + (1 << number)) % size,
        elements=lambda number, rank: length,
        suffix=lambda number: f"/{1 << number}",
        is_once=True,
        tensors=tensors,
        parts=lambda number, rank: [(rank + after) % size for after in range(tensors(number))],
    )


async def bruck_reduce_scatter(node: Transport, vector: Tensor, tag: str, *, combine: Combine = plus) -> Tensor:
    """Return part r of the sum of every rank's *vector* (1-D, equal length) on rank r. The rounds
    are those of the all-gather in reverse.
    """
    size, rank = node.size, node.rank
    parts = vector.tensor_split(size)
    # The partial sums for ranks r, r + 1, ..., where r is this rank.
    held = [parts[(rank + offset) % size].clone() for offset in range(size)]
    for step in reversed(_powers_of_two_below(size)):
        outgoing, held = pack(*held[step:]), held[:step]
        message = await exchange(node, (rank + step) % size, (rank - step) % size, f"{tag}/{step}", outgoing)
        for into, part in zip(held, message.tensors, strict=False):
            combine(into, part, out=into)
    return held[0]


async def bruck_all_to_all(node: Transport, tensors: Sequence[Tensor], tag: str) -> list[Tensor]:
    """Return the r-th of every rank's *tensors*, in rank order, on rank r.

    A tensor for the rank at distance k moves in the rounds that belong to the set bits of k.
    """
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
    """Wait for all ranks. After round k, each rank knows that 2^(k+1) ranks, including itself, have
    arrived.
    """
    for step in _powers_of_two_below(node.size):
        await exchange(node, (node.rank + step) % node.size, (node.rank - step) % node.size, f"{tag}/{step}", None)


def _powers_of_two_below(size: int) -> list[int]:
    return [1 << bit for bit in range((size - 1).bit_length())]
