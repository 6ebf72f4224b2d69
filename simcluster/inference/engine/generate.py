"""Pipelined inference: each stage holds consecutive layers, and batches of tokens pass down the line.

GPipe's cut of a model (Huang et al. 2019, section 2) without its backward pass. The first stage embeds tokens and makes
the batches; the last one chooses the next tokens, which go back to the first. With several batches in flight, all
stages work at once; a single request is in one stage at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import torch

from simcluster.collectives import subgroup
from simcluster.inference.engine.batch import Batch, Issued, read, written
from simcluster.inference.engine.desk import NodeLoad
from simcluster.inference.engine.engine import Engine
from simcluster.inference.engine.meter import Meter
from simcluster.inference.engine.stage import Stage
from simcluster.payload import pack
from simcluster.transport import Transport

STREAM, TOKENS = "stream", "tokens"


async def generate(node: Transport, stage: Stage, ranks: Sequence[int], engine: Engine | None = None) -> None:
    """Answer requests with the layers of *ranks*, first to last, each of which holds its *stage*.

    The first one has the *engine*. A rank that holds no layers takes no part.
    """
    if node.rank not in ranks:
        return
    line = subgroup(node, ranks)  # in which ranks are counted in the pipeline's order
    if line.rank > 0:
        return await _pass_on(line, stage)
    assert engine is not None, "the first stage has the engine"
    async with asyncio.TaskGroup() as sends:
        await engine.run(FirstStage(line, stage, sends))


class FirstStage:
    """The way through the model from its first stage *stage*, and back. Messages leave in the tasks *sends*."""

    def __init__(self, line: Transport, stage: Stage, sends: asyncio.TaskGroup) -> None:
        self._line, self._stage, self._sends = line, stage, sends
        self._meter = Meter(line, stage)
        self._chosen: asyncio.Queue[list[int]] = asyncio.Queue()

    async def issue(self, issued: Issued) -> None:
        batch, meter = issued.batch, self._meter
        stream = await meter.forward(batch, torch.tensor(issued.tokens, dtype=torch.int64))
        if self._line.size == 1:
            self._chosen.put_nowait((await meter.choose(batch, stream)).tolist())
        else:
            content = pack(stream, batch=written(batch), loads=meter.loads())
            self._sends.create_task(meter.send(1, STREAM, content))

    async def tokens(self) -> list[int]:
        if self._line.size == 1:
            return await self._chosen.get()
        message = await self._line.recv(self._line.size - 1, TOKENS)
        self._meter.heard(message["loads"])
        chosen: list[int] = message.tensor.tolist()
        return chosen

    async def end(self) -> None:
        if self._line.size > 1:
            await self._line.send(1, STREAM, None)

    @property
    def loads(self) -> tuple[NodeLoad, ...]:
        return self._meter.all_loads


async def _pass_on(line: Transport, stage: Stage) -> None:
    """Put every batch from the previous stage through *stage*, and hand it to the next one."""
    before, after, meter = line.rank - 1, line.rank + 1, Meter(line, stage)
    async with asyncio.TaskGroup() as sends:  # batches leave while the next one is computed
        while (message := await line.recv(before, STREAM)).tensors:
            batch: Batch = read(message["batch"])
            stream = await meter.forward(batch, message.tensor)
            if after < line.size:
                content = pack(stream, batch=message["batch"], loads=meter.loads(message["loads"]))
                sends.create_task(meter.send(after, STREAM, content))
            else:
                tokens = await meter.choose(batch, stream)
                sends.create_task(meter.send(0, TOKENS, pack(tokens, loads=meter.loads(message["loads"]))))
        if after < line.size:
            sends.create_task(line.send(after, STREAM, None))
