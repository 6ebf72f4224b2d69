"""Rank 2 sends until it is crashed by the plan; the others count what they get until they are told. Or rank 1 fails."""

from __future__ import annotations

import asyncio

import torch

from simcluster import ANY, FREE, PeerLost, Replica, Transport, pack
from simcluster.transport import Any_


async def bereft(node: Transport, replica: Replica, *, fails: bool = False) -> None:
    if node.rank == 2 and not fails:
        count = 0
        while True:
            count += 1
            for rank in node.peers:
                await node.send(rank, "count", pack(torch.tensor([float(count)])))
            await asyncio.sleep(0.001)
    got = 0.0

    async def take(source: int | Any_) -> None:
        nonlocal got
        got = got * 0.5 + float((await node.recv(source)).tensor[0])
        node.record(step=1, got=got)

    if fails:
        for rank in node.peers:
            await node.send(rank, "hello", pack(torch.tensor([float(node.rank)])))
        for _ in range(node.size - 1):
            await take(ANY)
        if node.rank == 1:
            raise ValueError(f"rank {node.rank} got {got}")
    try:
        while True:
            await take(1 if fails else 2)
    except PeerLost:
        await node.compute(replica.apply, [torch.full_like(p, got) for p in replica.parameters], cost=FREE)
