"""The all-gather of two ranks with gloo's order of messages, which determines its duration."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import torch
from torch import Tensor

from simcluster.errors import PeerLost
from simcluster.transport import Transport

PARTS = 2
"""The number of parts into which gloo splits a rank's tensor (gloo/allgather.cc)."""


async def gather_in_pair(group: Transport, tensor: Tensor, tag: str, sends: set[asyncio.Task[None]]) -> list[Tensor]:
    """Return the *tensor* of both ranks of *group*, in rank order.

    *sends*: a set for the tasks of sends that may outlast the call.

    Gloo sends a part once the other rank has reported that it is ready. Two ranks share one
    connection, and each sends its part before its own ready message. So the second rank to arrive
    sends its part at once, and its ready message queues after that part: its call takes 1.5 times
    as long, unless both ranks arrive within the latency of the link. The first rank has received
    everything by then. It leaves its own part to the kernel, for which gloo makes the socket's
    buffer large enough (tcp/pair.cc).
    """
    peer = 1 - group.rank

    async def give(number: int, part: Tensor) -> None:
        await group.recv(peer, f"{tag}/ready{number}")
        await group.send(peer, f"{tag}/part{number}", part)

    async def give_all(parts: Sequence[Tensor]) -> None:
        try:
            async with asyncio.TaskGroup() as giving:
                for number, part in enumerate(parts):
                    giving.create_task(give(number, part))
                    # Let the event loop run: if the peer is ready, the part is sent before the
                    # ready message.
                    for _ in range(3):
                        await asyncio.sleep(0)
                    giving.create_task(group.send(peer, f"{tag}/ready{number}", None))
        except* PeerLost:
            pass  # the receives below raise the peer's loss

    sending = asyncio.create_task(give_all(tensor.reshape(-1).clone().tensor_split(PARTS)))
    sends.add(sending)
    sending.add_done_callback(sends.discard)
    arrived = [(await group.recv(peer, f"{tag}/part{number}")).tensor for number in range(PARTS)]
    found = [tensor, torch.cat(arrived).view(tensor.shape)]
    return found if group.rank == 0 else found[::-1]
