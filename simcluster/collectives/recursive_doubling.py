"""Recursive doubling: partners exchange all they have, at distances 1, 2, 4, ... (Thakur, Rabenseifner and Gropp 2005).

The minimum number of latencies: best for small vectors.
"""

from __future__ import annotations

import torch
from torch import Tensor

from simcluster.collectives.binomial import First
from simcluster.collectives.exchange import exchange, run_rounds
from simcluster.collectives.fold import Places, fold_sum, folded_away, unfolded_start
from simcluster.payload import pack
from simcluster.rounds import Ranks, Rounds
from simcluster.transport import Transport


async def doubling_all_reduce(node: Transport, vector: Tensor, tag: str, *, first: First = "near") -> Tensor:
    """Return the sum of every rank's *vector*, the same bits on all ranks: the lower partner's operand comes first."""
    if vector.is_meta and vector.dim() == 1 and not Places(node.size).rest:
        await run_rounds(node, _rounds(node.size, vector, tag, first))
        return vector

    async def inner(total: Tensor, place: int, places: Places) -> Tensor:
        for bit in bits_in_order(places.bits, first):
            peer = places.rank_at(place ^ 1 << bit)
            theirs = (await exchange(node, peer, peer, f"{tag}/{bit}", total)).tensor
            total = theirs.add_(total) if place >> bit & 1 else total.add_(theirs)
        return total

    return await fold_sum(node, vector, tag, inner)


def _rounds(size: int, vector: Tensor, tag: str, first: First) -> Rounds:
    """Return the all-reduce's messages without values, among a power of two of ranks."""
    order, length = bits_in_order(size.bit_length() - 1, first), len(vector)

    def peer(number: int, rank: Ranks) -> Ranks:
        return rank ^ 1 << order[number]

    return Rounds(
        ("doubling", first, length),
        len(order),
        peer,
        peer,
        elements=lambda number, rank: length,
        tag=lambda number: f"{tag}/{order[number]}",
        vector=vector,
        is_once=True,
    )


async def doubling_all_gather(node: Transport, tensor: Tensor, tag: str, *, first: First = "near") -> list[Tensor]:
    """Return every rank's *tensor*, of any shape, by rank."""
    places = Places(node.size)
    place = places.place_of(node.rank)
    if place is None:
        others = (await folded_away(node, tensor, tag, places)).tensors
        return [*others[: node.rank], tensor, *others[node.rank :]]
    found = {node.rank: tensor}
    folded = await unfolded_start(node, tag, places, place)
    back = places.folded_into(place)
    if back is not None and folded is not None:
        found[back] = folded
    seen = [place]
    for bit in bits_in_order(places.bits, first):
        peer = places.rank_at(place ^ 1 << bit)
        message = await exchange(node, peer, peer, f"{tag}/{bit}", pack(*_in_order(found)))
        theirs = sorted(rank for other in seen for rank in places.ranks_at(other ^ 1 << bit))
        found.update(zip(theirs, message.tensors, strict=True))
        seen += [other ^ 1 << bit for other in seen]
    if back is not None:
        await node.send(back, f"{tag}/unfold", pack(*_in_order({r: t for r, t in found.items() if r != back})))
    return _in_order(found)


async def doubling_barrier(node: Transport, tag: str, *, first: First = "near") -> None:
    """Wait for all ranks: an empty all-reduce."""
    await doubling_all_reduce(node, torch.empty(0, dtype=torch.uint8), tag, first=first)


def bits_in_order(bits: int, first: First) -> list[int]:
    """Return the distances of the rounds as powers of two."""
    return list(range(bits)) if first == "near" else list(reversed(range(bits)))


def _in_order(found: dict[int, Tensor]) -> list[Tensor]:
    return [found[rank] for rank in sorted(found)]
