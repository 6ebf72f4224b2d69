"""Broadcast by direct sends from the root.

With p ranks, M bytes, latency a and bandwidth B: a + (p-1) M/B on a star, since all copies share the root's link.

This file knows ranks and tags. It must not know a backend, nor what the tensors are for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from torch import Tensor

from simcluster.payload import pack
from simcluster.transport import Transport


async def broadcast(node: Transport, tensors: Sequence[Tensor], tag: str, root: int = 0) -> list[Tensor]:
    """*tensors* of rank *root*, on every rank; the other ranks' own *tensors* are not looked at."""
    if node.rank != root:
        return list((await node.recv(root, tag)).tensors)
    async with asyncio.TaskGroup() as group:
        for peer in range(node.size):
            if peer != root:
                group.create_task(node.send(peer, tag, pack(*tensors)))
    return list(tensors)
