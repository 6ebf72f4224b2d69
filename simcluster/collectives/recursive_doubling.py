"""Recursive doubling: partners exchange all they have, at distances 1, 2, 4, ... (Thakur, Rabenseifner and Gropp 2005).

The minimum number of latencies: best for small vectors.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from simcluster.collectives.binomial import First
from simcluster.collectives.exchange import exchange, run_rounds_from, skipped
from simcluster.collectives.fold import Places, fold_rounds, fold_sum, folded_away, unfolded_start
from simcluster.payload import pack
from simcluster.rounds import Ranks, Rounds
from simcluster.transport import Transport


async def doubling_all_reduce(node: Transport, vector: Tensor, tag: str, *, first: First = "near") -> Tensor:
    """Return the sum of every rank's *vector*, the same bits on all ranks: the lower partner's operand comes first."""
    if vector.is_meta and vector.dim() == 1:
        places = Places(node.size)
        rounds = fold_rounds(_rounds(places, vector, tag, first), places, tag)
        if over := await skipped(node, rounds):
            await run_rounds_from(over, node, rounds)
            return vector

    async def inner(total: Tensor, place: int, places: Places) -> Tensor:
        for bit in bits_in_order(places.bits, first):
            peer = places.rank_at(place ^ 1 << bit)
            theirs = (await exchange(node, peer, peer, f"{tag}/{bit}", total)).tensor
            total = theirs.add_(total) if place >> bit & 1 else total.add_(theirs)
        return total

    return await fold_sum(node, vector, tag, inner)


def _rounds(places: Places, vector: Tensor, tag: str, first: First) -> Rounds:
    """Return the all-reduce's messages without values, among *places*."""
    order, length = bits_in_order(places.bits, first), len(vector)

    def peer(number: int, place: Ranks) -> Ranks:
        return place ^ 1 << order[number]

    return Rounds(
        ("doubling", first, length),
        len(order),
        peer,
        peer,
        elements=lambda number, place: length,
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
    seen, over = [place], 0
    if tensor.is_meta and tensor.dim() == 1 and not places.rest:
        over = await skipped(node, _gather_rounds(places, tensor, tag, first))
    for number, bit in enumerate(bits_in_order(places.bits, first)):
        peer = places.rank_at(place ^ 1 << bit)
        theirs = sorted(rank for other in seen for rank in places.ranks_at(other ^ 1 << bit))
        if number < over:
            found.update(dict.fromkeys(theirs, tensor))  # all ranks' are of one shape, and have no values
        else:
            message = await exchange(node, peer, peer, f"{tag}/{bit}", pack(*_in_order(found)))
            found.update(zip(theirs, message.tensors, strict=True))
        seen += [other ^ 1 << bit for other in seen]
    if back is not None:
        await node.send(back, f"{tag}/unfold", pack(*_in_order({r: t for r, t in found.items() if r != back})))
    return _in_order(found)


def _gather_rounds(places: Places, tensor: Tensor, tag: str, first: First) -> Rounds:
    """Return the all-gather's messages if all ranks' tensors are equally long: *name* differs otherwise."""
    rounds = _rounds(places, tensor, tag, first)
    return replace(rounds, name=("doubling all-gather", first, len(tensor)), tensors=lambda number: 1 << number)


async def doubling_barrier(node: Transport, tag: str, *, first: First = "near") -> None:
    """Wait for all ranks: an empty all-reduce."""
    await doubling_all_reduce(node, torch.empty(0, dtype=torch.uint8), tag, first=first)


def bits_in_order(bits: int, first: First) -> list[int]:
    """Return the distances of the rounds as powers of two."""
    return list(range(bits)) if first == "near" else list(reversed(range(bits)))


def _in_order(found: dict[int, Tensor]) -> list[Tensor]:
    return [found[rank] for rank in sorted(found)]
