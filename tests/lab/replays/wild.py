"""An algorithm whose result depends on everything that a real event loop decides: who comes first, which timer wins,
what was called off in time, what the clock says. No two real runs of it end alike, and a replay must.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import torch

from simcluster import ANY, FREE, Replica, Transport, pack


async def wild(node: Transport, replica: Replica, *, size: int = 1_500_000) -> None:
    seen = 1.0

    def note(what: float) -> None:
        nonlocal seen
        seen = (seen * 1.7 + what) % 1000.0

    async def listen() -> None:
        ends = node.size - 1
        while ends:
            message = await node.recv(ANY, ANY)
            ends -= message.tag == "end"
            note(message.source + float(message.tensor[0]) + len(node.peers))

    async def chat(lane: int) -> None:
        for turn in range(replica.steps):
            to = (node.rank + 1 + (lane + turn) % (node.size - 1)) % node.size
            with suppress(TimeoutError):
                async with asyncio.timeout(0.001 * (turn % 3)):
                    await node.send(to, f"lane {lane}", torch.full((size // (1, 100, 10_000)[lane],), seen))
                    note(0.25)
            await asyncio.sleep(0.0005 * lane)
            note(asyncio.get_running_loop().time() % 1.0)

    async def work() -> None:
        for batch in replica.batches():
            piece = asyncio.create_task(
                node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
            )
            asyncio.get_running_loop().call_later(0.004, piece.cancel)
            try:
                loss, gradients = await piece
            except asyncio.CancelledError:
                note(0.5)
                continue
            await node.compute(replica.apply, [gradient * seen for gradient in gradients], cost=FREE)
            node.record(step=1, loss=loss, seen=seen)

    async with asyncio.TaskGroup() as group:
        group.create_task(listen())
        async with asyncio.TaskGroup() as talking:
            talking.create_task(work())
            for lane in range(3):
                talking.create_task(chat(lane))
        for rank in node.peers:
            await node.send(rank, "end", pack(torch.tensor([seen])))
    await node.compute(replica.apply, [torch.full_like(p, seen) for p in replica.parameters], cost=FREE)
