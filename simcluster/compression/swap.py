"""All-to-all of lists of tensors: every rank sends something to every rank, at once.

With p ranks, m bytes to each, latency a and bandwidth B: a + (p-1) m/B on a full-duplex star.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from torch import Tensor

from simcluster.payload import pack
from simcluster.transport import Transport


async def swap(node: Transport, outgoing: Sequence[Sequence[Tensor]], tag: str) -> list[Sequence[Tensor]]:
    """Return what each rank sent to this one, by rank; *outgoing* is what this one sends to each, itself included."""
    others = [rank for rank in range(node.size) if rank != node.rank]
    async with asyncio.TaskGroup() as group:
        for peer in others:
            group.create_task(node.send(peer, tag, pack(*outgoing[peer])))
        coming = {peer: group.create_task(node.recv(peer, tag)) for peer in others}
    own = outgoing[node.rank]
    return [own if rank == node.rank else coming[rank].result().tensors for rank in range(node.size)]
