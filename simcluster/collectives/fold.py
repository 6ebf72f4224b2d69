"""Reduce any number of ranks to a power of two: a surplus rank gives its vector to a neighbour (MPICH's fold).

p = 2^f + rest. Of the first 2 rest ranks, each odd one folds into the even one before it. The remaining 2^f ranks have
the places 0, 1, ... in rank order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import numpy as np
from torch import Tensor

from simcluster.payload import Message
from simcluster.rounds import NO_RANK, Ranks, Rounds
from simcluster.transport import Transport


class Places:
    """The places of *size* ranks: *count* = 2^*bits* places, and *rest* ranks that are folded away."""

    def __init__(self, size: int) -> None:
        self.bits = size.bit_length() - 1
        self.count = 1 << self.bits
        self.rest = size - self.count

    def rank_at(self, place: int) -> int:
        return 2 * place if place < self.rest else place + self.rest

    def folded_into(self, place: int) -> int | None:
        """Return the rank that folds into *place*, if there is one."""
        return 2 * place + 1 if place < self.rest else None

    def ranks_at(self, place: int) -> list[int]:
        """Return the ranks that *place* stands for."""
        folded = self.folded_into(place)
        return [self.rank_at(place)] + ([] if folded is None else [folded])

    def place_of(self, rank: int) -> int | None:
        """Return the place of *rank*; None if it is folded away."""
        if rank >= 2 * self.rest:
            return rank - self.rest
        return None if rank % 2 else rank // 2


Inner = Callable[[Tensor, int, Places], Awaitable[Tensor]]
"""(sum so far, place, all places) -> the total sum, for the 2^f remaining ranks."""


async def fold_sum(node: Transport, vector: Tensor, tag: str, inner: Inner) -> Tensor:
    """Sum every rank's *vector* with *inner* among 2^f ranks; the same bits on all ranks if *inner* gives that."""
    places = Places(node.size)
    place = places.place_of(node.rank)
    if place is None:
        return (await folded_away(node, vector, tag, places)).tensor
    total = await inner(await folded_in(node, vector, tag, places, place), place, places)
    back = places.folded_into(place)
    if back is not None:
        await node.send(back, f"{tag}/unfold", total)
    return total


async def folded_away(node: Transport, vector: Tensor, tag: str, places: Places) -> Message:
    """Give *vector* to the rank before this one, and return the result that it sends back.

    Then tell the ranks that nothing folds into to start. Sends are eager: if they started earlier, their messages to a
    rank still receiving a fold would compete on its link.
    """
    await node.send(node.rank - 1, f"{tag}/fold", vector)
    for place in range(places.rest, places.count):
        if place % places.rest == node.rank // 2:
            await node.send(places.rank_at(place), f"{tag}/go", None)
    return await node.recv(node.rank - 1, f"{tag}/unfold")


def fold_rounds(inner: Rounds, places: Places, tag: str) -> Rounds:
    """Return the messages of `fold_sum` without values, if those of its inner function are *inner*, of places."""
    rest = places.rest
    if not rest:
        return inner
    # Round 0 folds; in those before *first* the others get start messages.
    first = 2 + (places.count - rest - 1) // rest
    last, length = first + inner.count, len(inner.vector)

    def place_at(rank: Ranks) -> Ranks:
        return np.where(rank >= 2 * rest, rank - rest, np.where(rank % 2, NO_RANK, rank // 2))

    def rank_at(place: Ranks) -> Ranks:
        return np.where(place < rest, 2 * place, place + rest)

    def to(number: int, rank: Ranks) -> Ranks:
        is_folded, place = (rank < 2 * rest) & (rank % 2 == 1), place_at(rank)
        if number == 0:
            return np.where(is_folded, rank - 1, NO_RANK)
        if number == last:
            return np.where(is_folded | (place >= rest), NO_RANK, rank + 1)
        if number < first:
            place = number * rest + rank // 2
            return np.where(is_folded & (place < places.count), rank_at(place), NO_RANK)
        return np.where(is_folded, NO_RANK, rank_at(inner.to(number - first, np.maximum(place, 0))))

    def source(number: int, rank: Ranks) -> Ranks:
        place = place_at(rank)
        if number == 0:
            return np.where((place >= 0) & (place < rest), rank + 1, NO_RANK)
        if number == last:
            return np.where(place < 0, rank - 1, NO_RANK)
        if number < first:
            return np.where(place // rest == number, 2 * (place % rest) + 1, NO_RANK)
        return np.where(place < 0, NO_RANK, rank_at(inner.source(number - first, np.maximum(place, 0))))

    def elements(number: int, rank: Ranks) -> Ranks:
        return inner.elements(number - first, np.maximum(place_at(rank), 0)) if first <= number < last else length

    def tag_of(number: int) -> str:
        if first <= number < last:
            return inner.tag(number - first)
        return f"{tag}/{'fold' if number == 0 else 'unfold' if number == last else 'go'}"

    return replace(
        inner,
        name=("fold", inner.name),
        count=last + 1,
        to=to,
        source=source,
        elements=elements,
        tag=tag_of,
        tensors=lambda number: 0 if 0 < number < first else 1,
    )


async def folded_in(node: Transport, vector: Tensor, tag: str, places: Places, place: int) -> Tensor:
    """Return a copy of *vector* plus the vector folded into this rank, once the first round may begin."""
    total = vector.clone()
    folded = await unfolded_start(node, tag, places, place)
    return total if folded is None else total.add_(folded)


async def unfolded_start(node: Transport, tag: str, places: Places, place: int) -> Tensor | None:
    """Return the vector folded into *place*, or None, once the first round may begin."""
    folded = places.folded_into(place)
    if folded is not None:
        return (await node.recv(folded, f"{tag}/fold")).tensor
    if places.rest:
        await node.recv(2 * (place % places.rest) + 1, f"{tag}/go")
    return None
