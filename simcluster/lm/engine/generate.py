"""Pipelined inference: each stage holds consecutive layers, and batches of tokens pass down the line.

GPipe's cut of a model (Huang et al. 2019, section 2) without its backward pass. The first stage embeds tokens and makes
the batches; the last one chooses the next tokens, which go back to the first. With several batches in flight, all
stages work at once; a single request is in one stage at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import torch

from simcluster.collectives import subgroup
from simcluster.lm.engine.batch import IssuedBatch, read, written
from simcluster.lm.engine.desk import NodeLoad
from simcluster.lm.engine.engine import Engine
from simcluster.lm.engine.meter import LoadMeter
from simcluster.lm.engine.stage import Stage
from simcluster.payload import pack
from simcluster.transport import Transport

STREAM, TOKENS = "stream", "tokens"


async def generate(node: Transport, stage: Stage, ranks: Sequence[int], engine: Engine | None = None) -> None:
    """Answer requests with the layers of *ranks*, first to last; each holds its *stage*.

    The first one has the *engine*. A rank that holds no layers takes no part.
    """
    if node.rank not in ranks:
        return
    line = LoadMeter(subgroup(node, ranks))  # in which ranks are counted in the pipeline's order
    async with asyncio.TaskGroup() as sends:  # batches leave while the next one is computed
        if engine is not None:
            await engine.run(FirstStage(line, stage, sends))
        else:
            await _pass_on(line, stage, sends)


async def _pass_on(line: LoadMeter, stage: Stage, sends: asyncio.TaskGroup) -> None:
    """Put every batch from the previous stage through *stage*, and hand it to the next one."""
    before, after, costs = line.rank - 1, line.rank + 1, stage.costs
    while (message := await line.recv(before, STREAM)).tensors:
        # Phase 1: the layers of this stage.
        batch, loads = read(message["batch"]), message["loads"]
        stream = await line.compute(stage.forward, batch, message.tensor, cost=costs.layers_of(batch))

        # Phase 2: the stream to the next stage; from the last one, the tokens to the first.
        if after < line.size:
            content = pack(stream, batch=message["batch"], loads=line.told(loads))
            sends.create_task(line.send(after, STREAM, content))
        else:
            chosen = await line.compute(stage.choose, batch, stream, cost=costs.head_of(batch))
            sends.create_task(line.send(0, TOKENS, pack(*chosen, loads=line.told(loads))))
    if after < line.size:
        await line.send(after, STREAM, None)


class FirstStage:
    """The way through the model from its first *stage*, and back. Messages leave in the tasks *sends*."""

    def __init__(self, line: LoadMeter, stage: Stage, sends: asyncio.TaskGroup) -> None:
        self._line, self._stage, self._sends = line, stage, sends
        self._is_alone = line.size == 1
        self._chosen: asyncio.Queue[Sequence[list[Any]]] = asyncio.Queue()

    async def issue(self, issued: IssuedBatch) -> None:
        batch, line, stage = issued.batch, self._line, self._stage
        tokens = torch.tensor(issued.tokens, dtype=torch.int64)
        stream = await line.compute(stage.forward, batch, tokens, cost=stage.costs.layers_of(batch))
        if self._is_alone:
            chosen = await line.compute(stage.choose, batch, stream, cost=stage.costs.head_of(batch))
            self._chosen.put_nowait([one.tolist() for one in chosen])
        else:
            self._sends.create_task(line.send(1, STREAM, pack(stream, batch=written(batch), loads=line.told())))

    async def tokens(self) -> Sequence[list[Any]]:
        if self._is_alone:
            return await self._chosen.get()
        message = await self._line.recv(self._line.size - 1, TOKENS)
        self._line.heard(message["loads"])
        return [one.tolist() for one in message.tensors]

    async def end(self) -> None:
        if not self._is_alone:
            await self._line.send(1, STREAM, None)

    @property
    def loads(self) -> tuple[NodeLoad, ...]:
        return self._line.loads
