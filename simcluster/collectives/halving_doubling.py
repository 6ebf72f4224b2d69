"""Halving and doubling (Rabenseifner 2004): half of the vector to one partner, a quarter to the next, and back again.

For p = 2^k the all-reduce sends as few bytes as a ring, in far fewer rounds; for other p, ranks are folded away.

The largest messages go to the first partners: with near first they stay off the far, usually slower links.
"""

from __future__ import annotations

from itertools import accumulate

from torch import Tensor

from simcluster.collectives.binomial import First
from simcluster.collectives.exchange import exchange, run_rounds_from, skipped
from simcluster.collectives.flat import start_of
from simcluster.collectives.fold import Places, fold_rounds, fold_sum, folded_away, folded_in
from simcluster.collectives.recursive_doubling import bits_in_order
from simcluster.payload import pack
from simcluster.rounds import Ranks, Rounds
from simcluster.transport import Transport


async def halving_all_reduce(node: Transport, vector: Tensor, tag: str, *, first: First = "near") -> Tensor:
    """Return the sum of every rank's *vector* (1-D, equal length), the same bits on all ranks."""
    if vector.is_meta:
        there = Places(node.size)
        rounds = fold_rounds(_rounds(there, vector, tag, first), there, tag)
        if over := await skipped(node, rounds):
            await run_rounds_from(over, node, rounds)
            return vector

    async def inner(total: Tensor, place: int, places: Places) -> Tensor:
        starts = [0, *accumulate(len(part) for part in total.tensor_split(places.count))]
        parts = range(places.count)  # the parts that this rank sums
        rounds = []

        # halving: send one half, receive the other
        for bit in bits_in_order(places.bits, first):
            halves = parts[: len(parts) // 2], parts[len(parts) // 2 :]
            upper = place >> bit & 1
            rounds.append((bit, halves[upper], halves[1 - upper]))
            parts = halves[upper]
            kept, given = (total[starts[half.start] : starts[half.stop]] for half in (parts, halves[1 - upper]))
            peer = places.rank_at(place ^ 1 << bit)
            theirs = (await exchange(node, peer, peer, f"{tag}/halve{bit}", given)).tensor
            kept.copy_(theirs.add_(kept) if upper else kept.add(theirs))

        # doubling: the reverse, with the sums
        for bit, kept_parts, given_parts in reversed(rounds):
            mine, other = (total[starts[half.start] : starts[half.stop]] for half in (kept_parts, given_parts))
            peer = places.rank_at(place ^ 1 << bit)
            other.copy_((await exchange(node, peer, peer, f"{tag}/double{bit}", mine)).tensor)
        return total

    return await fold_sum(node, vector, tag, inner)


def _rounds(places: Places, vector: Tensor, tag: str, first: First) -> Rounds:
    """Return the same messages without values, among *places*."""
    order, size, length = bits_in_order(places.bits, first), places.count, len(vector)

    def depth_of(number: int) -> int:
        return min(number, 2 * len(order) - 1 - number)  # halving it rises, doubling it falls

    def peer(number: int, rank: Ranks) -> Ranks:
        return rank ^ 1 << order[depth_of(number)]

    def half(number: int, rank: Ranks) -> Ranks:
        """Return the length of the half that is given while halving, or was kept while doubling."""
        depth = depth_of(number)
        owner = peer(number, rank) if number < len(order) else rank
        begin = sum((owner >> order[i] & 1) * (size >> i + 1) for i in range(depth + 1))
        return start_of(begin + (size >> depth + 1), length, size) - start_of(begin, length, size)

    def tag_of(number: int) -> str:
        return f"{tag}/{'halve' if number < len(order) else 'double'}{order[depth_of(number)]}"

    return Rounds(("halving", first, length), 2 * len(order), peer, peer, half, tag_of, vector)


async def halving_reduce_scatter(node: Transport, vector: Tensor, tag: str, *, first: First = "near") -> Tensor:
    """Return part r of the sum of every rank's *vector* (1-D, equal length) on rank r."""
    places = Places(node.size)
    place = places.place_of(node.rank)
    if place is None:
        return (await folded_away(node, vector, tag, places)).tensor
    total = await folded_in(node, vector, tag, places, place)
    sums = dict(enumerate(total.tensor_split(node.size)))
    held = list(range(places.count))  # the places whose ranks' parts are still summed here
    for bit in bits_in_order(places.bits, first):
        upper = place >> bit & 1
        kept, given = ([other for other in held if (other >> bit & 1) == side] for side in (upper, 1 - upper))
        peer = places.rank_at(place ^ 1 << bit)
        parts = pack(*(sums[rank] for other in given for rank in places.ranks_at(other)))
        theirs = (await exchange(node, peer, peer, f"{tag}/{bit}", parts)).tensors
        mine = [rank for other in kept for rank in places.ranks_at(other)]
        for rank, part in zip(mine, theirs, strict=True):
            sums[rank] = part.add_(sums[rank]) if upper else sums[rank].add(part)
        held = kept
    back = places.folded_into(place)
    if back is not None:
        await node.send(back, f"{tag}/unfold", sums[back])
    return sums[node.rank].clone()
