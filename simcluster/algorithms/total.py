"""The sum of a vector over all ranks: around a ring, or, if it travels compressed, from everybody to everybody.

What a sum of compressed vectors is cannot be told from their small forms, so those are not added on the way. This file
knows ranks and one stream of vectors. It must not know what they are.
"""

from __future__ import annotations

import asyncio

import torch
from torch import Tensor

from simcluster.algorithms.timed import timed
from simcluster.collectives import ring_all_reduce
from simcluster.compression import Codec, Compression
from simcluster.payload import pack
from simcluster.transport import Transport


class Total:
    """The stream of vectors called *name*, each of the length of *like*, compressed as asked for."""

    def __init__(self, node: Transport, compression: Compression, name: str, like: Tensor) -> None:
        self._node = node
        self._codec = Codec(compression, node.rng, name, [like])

    async def over_ranks(self, vector: Tensor, tag: str) -> Tensor:
        """The sum of every rank's *vector*, the same bits on all of them."""
        if self._codec.kind is None:
            return await ring_all_reduce(self._node, vector, tag)
        node, codec = self._node, self._codec
        small = await codec.compress(node, [vector])

        # everyone to everyone, at once
        others = [rank for rank in range(node.size) if rank != node.rank]
        async with asyncio.TaskGroup() as group:
            for peer in others:
                group.create_task(node.send(peer, tag, pack(*small)))
            coming = {peer: group.create_task(node.recv(peer, tag)) for peer in others}

        # sum by rank, one's own as the others see it
        parts = [small if rank == node.rank else coming[rank].result().tensors for rank in range(node.size)]
        (total,) = await codec.restore(node, parts[0])
        for part in parts[1:]:
            (more,) = await codec.restore(node, part)
            total = await timed(node, torch.add, total, more)
        return total
