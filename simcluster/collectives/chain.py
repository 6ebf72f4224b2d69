"""A chain: each rank passes everything to the next rank.

It is slow, but no link carries the data twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from simcluster.payload import pack
from simcluster.transport import Transport


async def chain_broadcast(node: Transport, tensors: Sequence[Tensor], tag: str, root: int) -> list[Tensor]:
    """Return the *tensors* of rank *root* on every rank; the other ranks' *tensors* are ignored."""
    if node.rank != root:
        tensors = (await node.recv((node.rank - 1) % node.size, tag)).tensors
    following = (node.rank + 1) % node.size
    if following != root:
        await node.send(following, tag, pack(*tensors))
    return list(tensors)
