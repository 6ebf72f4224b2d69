"""Any number of ranks as a power of two: who is left over gives to a neighbour first and gets back last (MPICH's fold).

p = 2^f + rest. The odd ones of the first 2 rest ranks are folded away into the even ones before them. The 2^f that are
left have the places 0, 1, ... in the order of their ranks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from torch import Tensor

from simcluster.transport import Transport


@dataclass(frozen=True)
class Places:
    """Who is where: *size* ranks at *count* = 2^*bits* places."""

    size: int

    @property
    def bits(self) -> int:
        return self.size.bit_length() - 1

    @property
    def count(self) -> int:
        return 1 << self.bits

    @property
    def rest(self) -> int:
        """How many are folded away."""
        return self.size - self.count

    def rank_at(self, place: int) -> int:
        return 2 * place if place < self.rest else place + self.rest

    def folded_into(self, place: int) -> int | None:
        """The rank that gives to the one at *place*, if there is one."""
        return 2 * place + 1 if place < self.rest else None

    def ranks_at(self, place: int) -> list[int]:
        """Whom the one at *place* stands for."""
        folded = self.folded_into(place)
        return [self.rank_at(place)] + ([] if folded is None else [folded])

    def place_of(self, rank: int) -> int | None:
        """None for a rank that is folded away."""
        if rank >= 2 * self.rest:
            return rank - self.rest
        return None if rank % 2 else rank // 2


Inner = Callable[[Tensor, int, Places], Awaitable[Tensor]]
"""(the sum so far, the place, all places) -> the sum of everybody's, for the 2^f that are left."""


async def fold_sum(node: Transport, vector: Tensor, tag: str, inner: Inner) -> Tensor:
    """Sums every rank's *vector* by *inner* among 2^f ranks; the same bits on all of them if *inner* gives that."""
    places = Places(node.size)
    place = places.place_of(node.rank)
    if place is None:
        return await folded_away(node, vector, tag, places)
    total = await inner(await folded_in(node, vector, tag, places, place), place, places)
    back = places.folded_into(place)
    if back is not None:
        await node.send(back, f"{tag}/unfold", total)
    return total


async def folded_away(node: Transport, vector: Tensor, tag: str, places: Places) -> Tensor:
    """Gives *vector* to the rank before this one; what that sends back in the end."""
    await node.send(node.rank - 1, f"{tag}/fold", vector)
    await let_go(node, tag, places)
    return (await node.recv(node.rank - 1, f"{tag}/unfold")).tensor


async def folded_in(node: Transport, vector: Tensor, tag: str, places: Places, place: int) -> Tensor:
    """A copy of *vector* with what was folded into this rank added, when the first round may begin."""
    total = vector.clone()
    folded = await unfolded_start(node, tag, places, place)
    return total if folded is None else total.add_(folded)


async def let_go(node: Transport, tag: str, places: Places) -> None:
    """Called by who has just folded its vector away: tells those that were given none to start now, and no earlier.

    Sends are eager: what they would send to one that is still being given to would compete with that on its link.
    """
    for place in range(places.rest, places.count):
        if place % places.rest == node.rank // 2:
            await node.send(places.rank_at(place), f"{tag}/go", None)


async def unfolded_start(node: Transport, tag: str, places: Places, place: int) -> Tensor | None:
    """Called by the one at *place*: what was folded into it, if anything was, when the first round may begin."""
    folded = places.folded_into(place)
    if folded is not None:
        return (await node.recv(folded, f"{tag}/fold")).tensor
    if places.rest:
        await node.recv(2 * (place % places.rest) + 1, f"{tag}/go")
    return None
