"""Along a binomial tree: in every round all that have it give it to one more each.

With p ranks, M bytes, latency a, bandwidth B and c = ceil(lg p), on a full-duplex star: c (a + M/B) down or up, for any
p; 2 c (a + M/B) up and down, which is the all-reduce; a barrier takes 2 c a. M bytes over each edge, p-1 edges.

The place of a rank in the tree is a number of c bits; its parent's is the same without the highest of them. Every p
takes c rounds, not only if the tree is full, since the last rank has the last place of all, at the end of the longest
way: a send is eager, so who has fewer children is through earlier, and nobody has to wait for the end of a round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from simcluster.payload import pack
from simcluster.transport import Transport

First = Literal["near", "far"]
"""Which partners come first: the neighbours in the list of ranks, or those half a list away."""


async def binomial_broadcast(
    node: Transport, tensors: Sequence[Tensor], tag: str, root: int, *, first: First = "near"
) -> list[Tensor]:
    """*tensors* of rank *root*, on every rank; the other ranks' own *tensors* are not looked at."""
    parent, children = _family(node, root, first)
    if parent is not None:
        tensors = (await node.recv(parent, tag)).tensors
    for child in children:
        await node.send(child, tag, pack(*tensors))
    return list(tensors)


async def binomial_reduce(
    node: Transport, vector: Tensor, tag: str, root: int, *, first: First = "near"
) -> Tensor | None:
    """The sum of every rank's *vector* on rank *root*, None on the others: children are added last one first."""
    parent, children = _family(node, root, first)
    async with asyncio.TaskGroup() as group:
        receiving = [group.create_task(node.recv(child, tag)) for child in children]
    total = vector.clone()
    for part in reversed(receiving):
        total.add_(part.result().tensor)
    if parent is None:
        return total
    await node.send(parent, tag, total)
    return None


async def binomial_all_reduce(node: Transport, vector: Tensor, tag: str, *, first: First = "near") -> Tensor:
    """The sum of every rank's *vector*: up to rank 0, and down again."""
    total = await binomial_reduce(node, vector, f"{tag}/up", 0, first=first)
    return (await binomial_broadcast(node, [] if total is None else [total], f"{tag}/down", 0, first=first))[0]


async def binomial_barrier(node: Transport, tag: str, *, first: First = "near") -> None:
    """Up to rank 0, and down again, without anything."""
    parent, children = _family(node, 0, first)
    for child in children:
        await node.recv(child, f"{tag}/up")
    if parent is not None:
        await node.send(parent, f"{tag}/up", None)
        await node.recv(parent, f"{tag}/down")
    for child in children:
        await node.send(child, f"{tag}/down", None)


def _family(node: Transport, root: int, first: First) -> tuple[int | None, list[int]]:
    """(the rank that this one hears from, those that hear from it, in the order of rounds), on the way down."""
    places = places_of(node.size, first)
    number_at = {place: number for number, place in enumerate(places)}
    bits = (node.size - 1).bit_length()

    def rank_of(place: int) -> int:
        return (number_at[place] + root) % node.size

    mine = places[(node.rank - root) % node.size]
    parent = rank_of(mine - (1 << mine.bit_length() - 1)) if mine else None
    below = [mine + (1 << bit) for bit in range(mine.bit_length(), bits)]
    return parent, [rank_of(place) for place in below if place in number_at]


def places_of(size: int, first: First) -> list[int]:
    """The place of number 0, 1, ... of *size* ranks counted from the root.

    Round k joins places 2^k apart. Near first, these are the numbers; far first, the numbers' bits read backwards.
    """
    bits = (size - 1).bit_length()
    places = [*range(size - 1), 2**bits - 1]
    return places if first == "near" else sorted(places, key=lambda place: int(f"{place:0{bits or 1}b}"[::-1], 2))
