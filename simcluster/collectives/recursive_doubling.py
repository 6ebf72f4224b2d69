"""Recursive doubling: partners at distances 1, 2, 4, ... exchange everything (Thakur, Rabenseifner,
Gropp 2005).

It waits for a latency only ceil(lg p) times, plus the rounds of a fold, so it is best for small
vectors.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from simcluster.collectives.binomial import First
from simcluster.collectives.exchange import run_rounds
from simcluster.collectives.fold import Places, fold_rounds
from simcluster.collectives.held_parts import HeldParts
from simcluster.collectives.operators import Combine, plus
from simcluster.rounds import WHOLE, Ranks, Rounds
from simcluster.transport import Transport


async def doubling_all_reduce(
    node: Transport, vector: Tensor, tag: str, *, first: First = "near", combine: Combine = plus
) -> Tensor:
    """Return the sum of every rank's *vector*, with the same bits on all ranks."""
    rounds = _reduce_rounds(node.size, vector.numel(), first).under(tag, vector)
    if vector.is_meta:
        await run_rounds(node, rounds)
        return vector
    held = HeldParts({WHOLE: vector.detach()}, vector, combine)
    await run_rounds(node, rounds, held)
    return held[WHOLE] if node.size > 1 else vector.clone()


async def doubling_all_gather(node: Transport, tensor: Tensor, tag: str, *, first: First = "near") -> list[Tensor]:
    """Return every rank's *tensor*, of any shape, in rank order."""
    held = HeldParts({node.rank: tensor}, like=tensor)
    await run_rounds(node, _gather_rounds(node.size, tensor.numel(), first).under(tag, tensor), held)
    return [held[rank] for rank in range(node.size)]


@lru_cache(maxsize=64)
def _reduce_rounds(size: int, length: int, first: First) -> Rounds:
    places = Places(size)
    return fold_rounds(doubling_rounds(places, length, first), places, length)


@lru_cache(maxsize=64)
def _gather_rounds(size: int, length: int, first: First) -> Rounds:
    places = Places(size)
    order = bits_in_order(places.bits, first)

    def seen(number: int, place: int) -> list[int]:
        """Return the ranks whose tensors have reached *place* before round *number*."""
        found = [place]
        for bit in order[:number]:
            found += [other ^ 1 << bit for other in found]
        return sorted(rank for other in found for rank in places.ranks_at(other))

    rounds = replace(
        doubling_rounds(places, length, first),
        # If there are surplus ranks, the messages of a round differ in their number of tensors, so
        # the rounds get no name and are never skipped.
        name=None if places.rest else ("doubling all-gather", first, length),
        tensors=lambda number: 1 << number,
        parts=seen,
        adds=lambda number: False,
    )
    others = lambda rank: [other for other in range(size) if other != rank + 1]  # noqa: E731
    return fold_rounds(rounds, places, length, lambda rank: [rank], others)


def doubling_rounds(places: Places, length: int, first: First) -> Rounds:
    """Return the rounds of an all-reduce among *places*. In each round a place sends its whole sum
    to a partner.
    """
    order = bits_in_order(places.bits, first)

    def peer(number: int, place: Ranks) -> Ranks:
        return place ^ 1 << order[number]

    return Rounds(
        ("doubling", first, length),
        len(order),
        peer,
        peer,
        elements=lambda number, place: length,
        suffix=[f"/{bit}" for bit in order].__getitem__,
        is_once=True,
        adds=lambda number: True,
    )


async def doubling_barrier(node: Transport, tag: str, *, first: First = "near") -> None:
    """Wait for all ranks, by an empty all-reduce."""
    await doubling_all_reduce(node, torch.empty(0, dtype=torch.uint8), tag, first=first)


def bits_in_order(bits: int, first: First) -> list[int]:
    """Return the exponent of each round's distance, which is a power of two."""
    return list(range(bits)) if first == "near" else list(reversed(range(bits)))
