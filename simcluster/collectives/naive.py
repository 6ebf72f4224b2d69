"""All-reduce by sending everything to everyone: the reference that other schedules are compared with.

With p ranks, M bytes, latency a and bandwidth B: a + (p-1) M/B on a full-duplex star, (p-1) M bytes sent by every rank.

This file knows ranks and one vector. It must not know a backend, nor what the vector is for.
"""

from __future__ import annotations

import asyncio

from torch import Tensor

from simcluster.transport import Transport


async def naive_all_reduce(node: Transport, vector: Tensor, tag: str) -> Tensor:
    """The sum of every rank's *vector* (equal shapes), taken in rank order: the same bits on all of them."""
    others = [rank for rank in range(node.size) if rank != node.rank]

    # everyone to everyone, at once
    async with asyncio.TaskGroup() as group:
        for peer in others:
            group.create_task(node.send(peer, tag, vector))
        receiving = {peer: group.create_task(node.recv(peer, tag)) for peer in others}

    # sum by rank, never by arrival
    parts = [vector if rank == node.rank else receiving[rank].result().tensor for rank in range(node.size)]
    result = parts[0].clone()
    for part in parts[1:]:
        result.add_(part)
    return result
