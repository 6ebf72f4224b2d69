"""Halving and doubling (Rabenseifner 2004): send half of the vector to one partner, a quarter to
the next, and so on; then return the sums in reverse order.

For p = 2^k the all-reduce sends as few bytes as a ring, in far fewer rounds; for other p, ranks are folded away.

The largest messages go to the first partners: with "near" first, they stay off the far, usually
slower links.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import accumulate, pairwise

from torch import Tensor

from simcluster.collectives.binomial import First
from simcluster.collectives.exchange import run_rounds
from simcluster.collectives.flat import lengths_of, start_of
from simcluster.collectives.fold import Places, fold_rounds
from simcluster.collectives.held_parts import CutVector
from simcluster.collectives.operators import Combine, plus
from simcluster.collectives.recursive_doubling import bits_in_order, doubling_rounds
from simcluster.rounds import Ranks, Rounds
from simcluster.transport import Transport


async def halving_all_reduce(
    node: Transport, vector: Tensor, tag: str, *, first: First = "near", combine: Combine = plus
) -> Tensor:
    """Return the sum of every rank's *vector* (1-D, equal length), with the same bits on all
    ranks.
    """
    rounds = _reduce_rounds(node.size, len(vector), first).under(tag, vector)
    if vector.is_meta:
        await run_rounds(node, rounds)
        return vector
    held = CutVector(vector.clone(), combine=combine)
    await run_rounds(node, rounds, held)
    return held.vector


@lru_cache(maxsize=64)
def _reduce_rounds(ranks: int, length: int, first: First) -> Rounds:
    """Return the rounds of an all-reduce: halves are sent and added, then the sums are sent
    back.
    """
    places = Places(ranks)
    order, size = bits_in_order(places.bits, first), places.count

    def depth_of(number: int) -> int:
        return min(number, 2 * len(order) - 1 - number)  # rises while halving, falls while doubling

    def peer(number: int, rank: Ranks) -> Ranks:
        return rank ^ 1 << order[depth_of(number)]

    def half(number: int, rank: Ranks) -> tuple[Ranks, Ranks]:
        """Return the bounds of the half that *rank* sends: the half that the peer sums (halving),
        or its own summed half (doubling).
        """
        depth = depth_of(number)
        owner = peer(number, rank) if number < len(order) else rank
        begin = sum((owner >> order[i] & 1) * (size >> i + 1) for i in range(depth + 1))
        return start_of(begin, length, size), start_of(begin + (size >> depth + 1), length, size)

    def elements(number: int, rank: Ranks) -> Ranks:
        start, stop = half(number, rank)
        return stop - start

    rounds = Rounds(
        ("halving", first, length),
        2 * len(order),
        peer,
        peer,
        elements,
        suffix=lambda number: f"/{'halve' if number < len(order) else 'double'}{order[depth_of(number)]}",
        parts=lambda number, rank: [half(number, rank)],
        adds=lambda number: number < len(order),
    )
    return fold_rounds(rounds, places, length)


async def halving_reduce_scatter(
    node: Transport, vector: Tensor, tag: str, *, first: First = "near", combine: Combine = plus
) -> Tensor:
    """Return part r of the sum of every rank's *vector* (1-D, equal length) on rank r."""
    bounds, total = _bounds(len(vector), node.size), vector.detach().clone()
    held = CutVector(total, zip(bounds, total.tensor_split(node.size), strict=True), combine)
    await run_rounds(node, _scatter_rounds(node.size, len(vector), first).under(tag, vector), held)
    return held[bounds[node.rank]].clone()


@lru_cache(maxsize=64)
def _bounds(length: int, size: int) -> list[tuple[int, int]]:
    """Return the bounds of each rank's part."""
    return list(pairwise([0, *accumulate(lengths_of(length, size))]))


@lru_cache(maxsize=64)
def _scatter_rounds(size: int, length: int, first: First) -> Rounds:
    places, bounds = Places(size), _bounds(length, size)
    order = bits_in_order(places.bits, first)

    def given(number: int, place: int) -> list[tuple[int, int]]:
        """Return the parts of the half that the peer will sum: those of all places whose bits up to
        this round are the peer's.
        """
        peer, mask = place ^ 1 << order[number], sum(1 << bit for bit in order[: number + 1])
        half = [other for other in range(places.count) if not (other ^ peer) & mask]
        return [bounds[rank] for other in half for rank in places.ranks_at(other)]

    rounds = replace(doubling_rounds(places, length, first), name=None, parts=given)
    return fold_rounds(rounds, places, length, unfold=lambda rank: [bounds[rank + 1]])
