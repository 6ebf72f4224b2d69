"""Tensor-parallel inference: every rank has a shard of every layer, and ranks sum their results.

As in Megatron-LM (Shoeybi et al. 2019, section 3), the ranks split the attention heads and the
columns of the feed-forward network. Each of these two halves of a layer ends with a sum over ranks.
The sum uses the direct schedule, which needs two exchanges and adds in rank order. Every rank has
all embeddings and a share of the logits. The first rank makes the batches and chooses the tokens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from simcluster.collectives import all_reduce, gather, subgroup
from simcluster.lm.engine.batch import EngineBatch, IssuedBatch, read, written
from simcluster.lm.engine.engine import Engine
from simcluster.lm.engine.meter import LoadMeter
from simcluster.lm.engine.sharded import EngineShard
from simcluster.payload import pack
from simcluster.transport import FREE, Transport

BATCH, LOAD = "batch", "load"


async def generate_tensor(
    node: Transport, shard: EngineShard, ranks: Sequence[int], engine: Engine | None = None
) -> None:
    """Run this rank's *shard* of every layer, with the other *ranks*, until the requests end.

    The first rank has the *engine*. A rank that is not among *ranks* returns at once.
    """
    if node.rank not in ranks:
        return
    group = LoadMeter(subgroup(node, ranks))
    async with asyncio.TaskGroup() as tasks:
        if engine is not None:
            tasks.create_task(engine.run(FirstShard(group, shard, tasks)))
        else:
            tasks.create_task(_follow(group, shard, tasks))


async def _follow(group: LoadMeter, shard: EngineShard, tasks: asyncio.TaskGroup) -> None:
    """Take part in every batch that the first rank sends, until it sends an empty message."""
    while (message := await group.recv(0, BATCH)).tensors:
        await _through(group, shard, read(message["batch"]), message.tensor)
        tasks.create_task(group.send_with_loads(0, LOAD))
    await group.send(0, LOAD, {"loads": ""})


async def _through(group: LoadMeter, shard: EngineShard, batch: EngineBatch, tokens: Tensor) -> list[Tensor]:
    """Compute *batch* through all layers. On the first rank, return each rank's logit columns.

    Return [] on the other ranks, and if no piece of *batch* samples.
    """
    costs = shard.costs
    stream = await group.compute(shard.embed, batch, tokens, cost=FREE)
    # `total` is the last sum over ranks. The next piece of work adds it to the stream, which saves
    # an operation per sum.
    total: Tensor | None = None
    for layer in range(costs.layers):
        # Phase 1, attention: compute this rank's heads, then sum over ranks.
        stream, part = await group.compute(shard.attention, layer, stream, total, cost=costs.attention_of(batch))
        total = await all_reduce(group, part, f"attention/{layer}", schedule="direct")

        # Phase 2, feed-forward network: compute this rank's columns, then sum over ranks.
        stream, part = await group.compute(shard.feed_forward, layer, stream, total, cost=costs.feed_of(batch))
        total = await all_reduce(group, part, f"feed/{layer}", schedule="direct")
    stream = await group.compute(shard.finish, stream, total, cost=FREE)

    # Phase 3, logits: compute this rank's columns; the first rank gathers all columns.
    if not batch.rows:
        return []
    columns = await group.compute(shard.logits, batch, stream, cost=costs.head_of(batch))
    return await gather(group, columns, "logits")


class FirstShard:
    """The ModelRunner of tensor parallelism, on the first rank of *group*.

    It has one batch in flight.
    """

    def __init__(self, group: LoadMeter, shard: EngineShard, tasks: asyncio.TaskGroup) -> None:
        self.meter = group
        self._shard = shard
        self._tasks = tasks
        self._chosen: asyncio.Queue[Sequence[list[Any]]] = asyncio.Queue()
        for rank in range(1, group.size):
            tasks.create_task(self._hear(rank))

    async def issue(self, issued: IssuedBatch) -> None:
        batch = issued.batch
        group = self.meter
        shard = self._shard
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
        for rank in range(1, self.meter.size):
            await self.meter.send(rank, BATCH, None)

    async def _hear(self, rank: int) -> None:
        while loads := (await self.meter.recv(rank, LOAD))["loads"]:
            self.meter.heard(loads)
