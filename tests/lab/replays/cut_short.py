"""Every rank fails while its device is in the middle of a step."""

from __future__ import annotations

import asyncio

import torch

from simcluster import FREE, Replica, Transport


async def cut_short(node: Transport, replica: Replica) -> None:
    def step() -> None:
        work = torch.eye(400)
        for _ in range(100):  # a few tenths of a second
            work = work @ work
        replica.apply([work[0, 0].expand_as(p) for p in replica.parameters])

    async with asyncio.TaskGroup() as group:
        group.create_task(node.compute(step, cost=FREE))
        await asyncio.sleep(0.02)
        raise ValueError("enough")
