"""Tensor-parallel inference: all ranks share every layer, and sum its two halves.

Shoeybi et al. 2019 (Megatron-LM), section 3: heads and columns of the feed-forward network are split, so that each half
of a layer ends with one sum over ranks. The direct schedule takes a sum in two exchanges, and in rank order. Every rank
has the embeddings, and a share of the logits; the first one makes the batches and chooses the tokens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from simcluster.collectives import all_reduce, gather, subgroup
from simcluster.lm.engine.batch import EngineBatch, IssuedBatch, read, written
from simcluster.lm.engine.desk import NodeLoad
from simcluster.lm.engine.engine import Engine
from simcluster.lm.engine.meter import LoadMeter
from simcluster.lm.engine.sharded import EngineShard
from simcluster.payload import pack
from simcluster.transport import FREE, Transport

BATCH, LOAD = "batch", "load"


async def generate_tensor(
    node: Transport, shard: EngineShard, ranks: Sequence[int], engine: Engine | None = None
) -> None:
    """Answer requests with a *shard* of every layer on each of *ranks*; the first one has the *engine*."""
    if node.rank not in ranks:
        return
    group = LoadMeter(subgroup(node, ranks))
    async with asyncio.TaskGroup() as tasks:
        if engine is not None:
            await engine.run(FirstShard(group, shard, tasks))
        else:
            await _follow(group, shard, tasks)


async def _follow(group: LoadMeter, shard: EngineShard, tasks: asyncio.TaskGroup) -> None:
    """Take part in every batch of the first rank."""
    while (message := await group.recv(0, BATCH)).tensors:
        await _through(group, shard, read(message["batch"]), message.tensor)
        tasks.create_task(group.send(0, LOAD, {"loads": group.told()}))
    await group.send(0, LOAD, {"loads": ""})


async def _through(group: LoadMeter, shard: EngineShard, batch: EngineBatch, tokens: Tensor) -> list[Tensor]:
    """Put *batch* through all layers; return all ranks' columns of its logits on the first rank."""
    costs = shard.costs
    stream = await group.compute(shard.embed, batch, tokens, cost=FREE)
    total: Tensor | None = None  # which the next piece of work adds to the stream
    for layer in range(costs.layers):
        # Phase 1, attention: this rank's heads, and the sum over ranks.
        stream, part = await group.compute(shard.attention, layer, stream, total, cost=costs.attention_of(batch))
        total = await all_reduce(group, part, f"attention/{layer}", schedule="direct")

        # Phase 2, feed-forward network: this rank's columns, and the sum over ranks.
        stream, part = await group.compute(shard.feed_forward, layer, stream, total, cost=costs.feed_of(batch))
        total = await all_reduce(group, part, f"feed/{layer}", schedule="direct")
    stream = await group.compute(shard.finish, stream, total, cost=FREE)

    # Phase 3, logits: this rank's columns; the first rank gathers all.
    if not batch.rows:
        return []
    columns = await group.compute(shard.logits, batch, stream, cost=costs.head_of(batch))
    return await gather(group, columns, "logits")


class FirstShard:
    """The way through all layers at once, as the first rank of *group* goes it. One batch is in flight."""

    def __init__(self, group: LoadMeter, shard: EngineShard, tasks: asyncio.TaskGroup) -> None:
        self._group, self._shard, self._tasks = group, shard, tasks
        self._chosen: asyncio.Queue[Sequence[list[Any]]] = asyncio.Queue()
        for rank in range(1, group.size):
            tasks.create_task(self._hear(rank))

    async def issue(self, issued: IssuedBatch) -> None:
        batch, group, shard = issued.batch, self._group, self._shard
        tokens = torch.tensor(issued.tokens, dtype=torch.int32)
        for rank in range(1, group.size):
            self._tasks.create_task(group.send(rank, BATCH, pack(tokens, batch=written(batch))))
        columns = await _through(group, shard, batch, tokens)
        chosen: list[list[Any]] = [[]]
        if columns:
            found = await group.compute(shard.choose, batch, torch.cat(columns, 1), cost=FREE)
            chosen = [one.tolist() for one in found]
        self._chosen.put_nowait(chosen)

    async def tokens(self) -> Sequence[list[Any]]:
        return await self._chosen.get()

    async def end(self) -> None:
        for rank in range(1, self._group.size):
            await self._group.send(rank, BATCH, None)

    async def _hear(self, rank: int) -> None:
        while loads := (await self._group.recv(rank, LOAD))["loads"]:
            self._group.heard(loads)

    @property
    def loads(self) -> tuple[NodeLoad, ...]:
        return self._group.loads
