"""Bandwidth-aware shards: a rank with a slow link sums less for the others (after BytePS, Jiang et al. 2020).

Rank i owns a share w_i of the vector: it receives that share from every rank and sends the sum to
all. Its link carries 1 + (p-2) w_i times the vector's M bytes each way, pushes and sums together.
On a star whose link to rank i has the bandwidth B_i, the shares w_i = (B_i/S - 1)/(p-2), never
below 0 (`shares`), keep all links busy for the same M/S seconds, where S = (B_1 + ... + B_p) /
(2(p-1)). In a ring all ranks wait for the slowest link: 2 (p-1)/p M/B_min. Shares are split into
pieces so that sums are in flight while later pieces are pushed; the all-reduce takes longer than
M/S by about the time of one piece.

With equal shares the ring is used: it is as fast, with fewer and larger messages.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from itertools import accumulate, pairwise

from torch import Tensor

from simcluster.collectives.flat import summed
from simcluster.collectives.operators import Combine, plus
from simcluster.collectives.ring import ring_all_reduce
from simcluster.transport import Transport

PIECES = 16


async def bandwidth_aware_all_reduce(
    node: Transport, vector: Tensor, tag: str, *, weights: Sequence[float], pieces: int = PIECES,
    combine: Combine = plus,
) -> Tensor:  # fmt: skip
    """Return the sum of every rank's *vector* (1-D, equal length), in rank order: the same bits on all ranks.

    *weights*: the shares by rank, in any scale. *pieces*: the number of pieces per share.
    """
    fine = len(weights) == node.size and all(math.isfinite(weight) and weight >= 0 for weight in weights)
    if not fine or not any(weights):
        raise ValueError(f"weights {list(weights)}: expected {node.size} numbers of 0 or above, not all 0")
    if pieces < 1:
        raise ValueError(f"{pieces} pieces: expected at least 1")
    if min(weights) == max(weights):
        return await ring_all_reduce(node, vector, tag, combine=combine)
    own, result = _cut(vector, weights, pieces), vector.new_empty(len(vector))
    sums = _cut(result, weights, pieces)
    others = [rank for rank in range(node.size) if rank != node.rank]
    async with asyncio.TaskGroup() as group:
        # Push the first piece of every share, then the second of every share, and so on.
        for number in range(pieces):
            for peer in others:
                if number < len(own[peer]):
                    group.create_task(node.send(peer, f"{tag}/push{number}", own[peer][number]))
        for peer in others:
            group.create_task(_take(node, peer, tag, sums[peer]))

        # Sum and send each piece as soon as it has arrived from every rank.
        for number, piece in enumerate(own[node.rank]):
            ranks, push = range(node.size), f"{tag}/push{number}"
            parts = [piece if rank == node.rank else (await node.recv(rank, push)).tensor for rank in ranks]
            total = summed(parts, combine)
            sums[node.rank][number].copy_(total)
            for peer in others:
                group.create_task(node.send(peer, f"{tag}/sum{number}", total))
    return result


def shares(bandwidths_Bps: Sequence[float]) -> list[float]:
    """Return the shares that keep all links of a star busy for the same time. They add up to 1.

    *bandwidths_Bps*: the bandwidth of each rank's link, each way. A rank whose link is too slow to
    sum for others gets the share 0; the other ranks divide the vector. One or two ranks get equal
    shares, since other shares gain nothing.
    """
    size = len(bandwidths_Bps)
    if size < 3:
        return [1.0 / size] * size
    summing = list(range(size))
    while True:
        # For the ranks that sum, w_i = (T B_i - 1)/(p - 2) with a common time T such that the
        # shares add up to 1.
        time_s = (len(summing) + size - 2) / math.fsum(bandwidths_Bps[rank] for rank in summing)
        found = {rank: (time_s * bandwidths_Bps[rank] - 1.0) / (size - 2) for rank in summing}
        kept = [rank for rank in summing if found[rank] > 0.0]
        if kept == summing:
            return [found.get(rank, 0.0) for rank in range(size)]
        summing = kept


async def _take(node: Transport, source: int, tag: str, into: Sequence[Tensor]) -> None:
    for number, piece in enumerate(into):
        piece.copy_((await node.recv(source, f"{tag}/sum{number}")).tensor)


def _cut(vector: Tensor, weights: Sequence[float], pieces: int) -> list[list[Tensor]]:
    """Return the pieces of each share, as views of *vector*. No piece is empty."""
    whole = math.fsum(weights)
    bounds = [round(len(vector) * min(1.0, so_far / whole)) for so_far in accumulate(weights, initial=0.0)]
    bounds[-1] = len(vector)
    parts = [vector[start:stop] for start, stop in pairwise(bounds)]
    return [list(part.tensor_split(min(pieces, len(part)))) if len(part) else [] for part in parts]
