"""Binomial trees: in every round, each rank that has the data passes it, or half of it, to one more rank.

Each of the p ranks has a place in the tree, a number of c = ceil(lg p) bits. A parent's place is
its child's place without the highest set bit. Every schedule takes c rounds, even if p is not a
power of two and the tree is not full, since the last rank has the last place, at the end of the
longest path. Sends are eager: a rank with fewer children finishes earlier, and no rank waits for a
round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from simcluster.collectives.exchange import run_rounds, skipped
from simcluster.collectives.operators import Combine, plus
from simcluster.payload import pack
from simcluster.rounds import NO_RANK, Ranks, Rounds
from simcluster.transport import Transport

First = Literal["near", "far"]
"""The partners of the first round: "near" means neighbours in the list of ranks, "far" means ranks
half the list apart.
"""


async def binomial_broadcast(
    node: Transport, tensors: Sequence[Tensor], tag: str, root: int, *, first: First = "near"
) -> list[Tensor]:
    """Return the *tensors* of rank *root* on every rank; the other ranks' *tensors* are ignored."""
    parent, children = _family(node, root, first)
    if parent is not None:
        tensors = (await node.recv(parent, tag)).tensors
    for child in children:
        await node.send(child, tag, pack(*tensors))
    return list(tensors)


async def binomial_reduce(
    node: Transport, vector: Tensor, tag: str, root: int, *, first: First = "near", combine: Combine = plus
) -> Tensor | None:
    """Return the sum of every rank's *vector* on rank *root*, and None on the other ranks.

    A rank adds the vectors of its children in the order from last to first.
    """
    parent, children = _family(node, root, first)
    async with asyncio.TaskGroup() as group:
        receiving = [group.create_task(node.recv(child, tag)) for child in children]
    total = vector.clone()
    for part in reversed(receiving):
        combine(total, part.result().tensor, out=total)
    if parent is None:
        return total
    await node.send(parent, tag, total)
    return None


async def binomial_all_reduce(
    node: Transport, vector: Tensor, tag: str, *, first: First = "near", combine: Combine = plus
) -> Tensor:
    """Return the sum of every rank's *vector*, by a reduce to rank 0 and a broadcast."""
    if vector.is_meta and vector.dim() == 1 and node.size > 1:
        rounds = _rounds(node.size, len(vector), first).under(tag, vector)
        if over := await skipped(node, rounds):
            await run_rounds(node, rounds, over=over)
            return vector
    total = await binomial_reduce(node, vector, f"{tag}/up", 0, first=first, combine=combine)
    return (await binomial_broadcast(node, [] if total is None else [total], f"{tag}/down", 0, first=first))[0]


async def binomial_barrier(node: Transport, tag: str, *, first: First = "near") -> None:
    """Wait for all ranks, by an empty reduce to rank 0 and an empty broadcast."""
    parent, children = _family(node, 0, first)
    for child in children:
        await node.recv(child, f"{tag}/up")
    if parent is not None:
        await node.send(parent, f"{tag}/up", None)
        await node.recv(parent, f"{tag}/down")
    for child in children:
        await node.send(child, f"{tag}/down", None)


def _family(node: Transport, root: int, first: First) -> tuple[int | None, list[int]]:
    """Return (this rank's parent or None, its children in the order of rounds) in a broadcast from
    *root*.
    """
    places, number_at = _places(node.size, first)
    mine = int(places[(node.rank - root) % node.size])

    def rank_of(place: int) -> int:
        return (int(number_at[place]) + root) % node.size

    parent = rank_of(mine - (1 << mine.bit_length() - 1)) if mine else None
    below = [mine + (1 << bit) for bit in range(mine.bit_length(), (node.size - 1).bit_length())]
    return parent, [rank_of(place) for place in below if number_at[place] != NO_RANK]


@lru_cache(maxsize=8)
def _places(size: int, first: First) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (the place of each number, the number at each place or NO_RANK).

    A number is a rank counted from the root.

    Round k joins places 2^k apart. The places are 0 to size - 2 and, for the longest path, 2^bits -
    1. Numbers take them in ascending order if *first* is "near", and in the order of their reversed
    bits if it is "far".
    """
    bits = (size - 1).bit_length()
    places = [*range(size - 1), 2**bits - 1]
    if first == "far":
        places.sort(key=lambda place: int(f"{place:0{bits or 1}b}"[::-1], 2))
    number_at = np.full(2**bits, NO_RANK)
    number_at[places] = np.arange(size)
    return np.array(places), number_at


@lru_cache(maxsize=64)
def _rounds(size: int, length: int, first: First) -> Rounds:
    """Return the rounds of the all-reduce's messages, for vectors without values. In each round,
    messages go between parents and children whose places differ in one bit, which is the same for
    all pairs.
    """
    places, number_at = _places(size, first)
    bits = (size - 1).bit_length()

    def other(number: int, rank: Ranks, *, sends: bool) -> Ranks:
        """Return the rank that *rank* sends to if *sends*, otherwise the rank that it receives
        from.
        """
        is_up, place = number < bits, places[rank]
        bit = bits - 1 - number if is_up else number - bits
        return np.where(place >> bit == (is_up == sends), number_at[place ^ 1 << bit], NO_RANK)

    return Rounds(
        ("binomial", first, length),
        2 * bits,
        to=partial(other, sends=True),
        source=partial(other, sends=False),
        elements=lambda number, rank: length,
        suffix=lambda number: "/up" if number < bits else "/down",
        is_once=True,
        gathering=bits,
    )


async def binomial_scatter(node: Transport, tensors: Sequence[Tensor], tag: str, root: int) -> Tensor:
    """Return the r-th of rank *root*'s *tensors* on rank r; the other ranks' *tensors* are
    ignored.
    """
    parent, mine, children = _subtrees(node, root)
    if parent is None:
        held = [tensors[(place + root) % node.size] for place in range(node.size)]
    else:
        held = list((await node.recv(parent, tag)).tensors)
    for child in children:
        part = held[child.start - mine.start : child.stop - mine.start]
        await node.send((child.start + root) % node.size, tag, pack(*part))
    return held[0]


async def binomial_gather(node: Transport, tensor: Tensor, tag: str, root: int) -> list[Tensor]:
    """Return the list of every rank's *tensor*, in rank order, on rank *root*, and an empty list on
    the other ranks.
    """
    parent, _, children = _subtrees(node, root)
    async with asyncio.TaskGroup() as group:
        receiving = [group.create_task(node.recv((child.start + root) % node.size, tag)) for child in children]
    held = [tensor]
    for part in reversed(receiving):  # the last child holds the nearest ranks
        held += part.result().tensors
    if parent is not None:
        await node.send(parent, tag, pack(*held))
        return []
    return [held[(rank - root) % node.size] for rank in range(node.size)]


def _subtrees(node: Transport, root: int) -> tuple[int | None, range, list[range]]:
    """Return (parent, this rank's subtree, its children's subtrees, largest first). The parent is a
    rank or None; subtrees are ranges of places, counted from the root.
    """
    place = (node.rank - root) % node.size
    parent: int | None = None
    mine = range(node.size)
    children: list[range] = []
    while len(mine) > 1:
        middle = mine.stop - len(mine) // 2
        # *given* is never larger than *kept*.
        kept, given = range(mine.start, middle), range(middle, mine.stop)
        if place in given:
            parent = (mine.start + root) % node.size
            mine = given
            children = []
        else:
            mine = kept
            if place == kept.start:
                children.append(given)
    return parent, range(place, max((child.stop for child in children), default=place + 1)), children
