"""The all-gather of two ranks as gloo makes it: the order of its messages decides how long it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import torch
from torch import Tensor

from simcluster.errors import PeerLost
from simcluster.transport import Transport

PARTS = 2
"""Gloo cuts a rank's tensor into so many (gloo/allgather.cc)."""


async def gather_in_pair(group: Transport, tensor: Tensor, tag: str, sends: set[asyncio.Task[None]]) -> list[Tensor]:
    """Return the *tensor* of both ranks of *group*, by rank; add what is still to be sent to *sends*.

    Gloo sends a part when the other rank has said that it is ready for it. Two ranks have one connection for both, and
    each sends before it says so: the second to come sends its part, and only behind that part says that it is ready.
    So the call takes it 1.5 times as long, unless both ranks come within the latency of the link. The first to come has
    everything by then, and leaves its own part to the kernel: gloo makes the buffer there large enough (tcp/pair.cc).
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
                    for _ in range(3):  # if the peer is ready, the part goes first
                        await asyncio.sleep(0)
                    giving.create_task(group.send(peer, f"{tag}/ready{number}", None))
        except* PeerLost:
            pass  # the call receives from this peer, and raises it

    sending = asyncio.create_task(give_all(tensor.reshape(-1).clone().tensor_split(PARTS)))
    sends.add(sending)
    sending.add_done_callback(sends.discard)
    arrived = [(await group.recv(peer, f"{tag}/part{number}")).tensor for number in range(PARTS)]
    found = [tensor, torch.cat(arrived).view(tensor.shape)]
    return found if group.rank == 0 else found[::-1]
