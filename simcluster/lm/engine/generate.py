"""Pipelined inference: each stage holds consecutive layers, and batches pass from stage to stage.

The model is split as in GPipe (Huang et al. 2019, section 2), without the backward pass. The first
stage makes the batches and embeds their tokens. The last stage chooses the next tokens and returns
them to the first. With several batches in flight, all stages work at once; a single request
occupies one stage at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from simcluster.collectives import subgroup
from simcluster.lm.engine.batch import IssuedBatch, read, ruled_tensors, written
from simcluster.lm.engine.engine import Engine
from simcluster.lm.engine.meter import LoadMeter
from simcluster.lm.engine.stage import Stage
from simcluster.transport import Transport

STREAM, TOKENS = "stream", "tokens"


async def generate(node: Transport, stage: Stage, ranks: Sequence[int], engine: Engine | None = None) -> None:
    """Run this rank's *stage* in the pipeline of *ranks* until the requests end.

    *ranks* are in the order of the layers, and the first rank has the *engine*. A rank that is not
    among *ranks* returns at once.
    """
    if node.rank not in ranks:
        return
    line = LoadMeter(subgroup(node, ranks))  # numbers the ranks in the pipeline's order
    # The stage has its own task, so that waking it does not resume every caller of this function.
    # Each result is also sent in its own task, while the next batch is computed.
    async with asyncio.TaskGroup() as tasks:
        if engine is not None:
            tasks.create_task(engine.run(FirstStage(line, stage, tasks)))
        else:
            tasks.create_task(_pass_on(line, stage, tasks))


async def _pass_on(line: LoadMeter, stage: Stage, tasks: asyncio.TaskGroup) -> None:
    """Receive each batch from the previous stage, compute *stage*, and send the result on."""
    before = line.rank - 1
    after = line.rank + 1
    costs = stage.costs
    is_last = after == line.size
    while (content := (await line.recv(before, STREAM)).payload).tensors:
        # Phase 1: compute the layers of this stage.
        values: Mapping[str, Any] = content.values
        stream, *ruled = content.tensors
        batch, loads = read(values["batch"], ruled), values["loads"]
        stream = await line.compute(stage.forward, batch, stream, cost=costs.layers_of(batch))

        # Phase 2: send the stream to the next stage, or the chosen tokens to the first one.
        if not is_last:
            tasks.create_task(line.send_with_loads(after, STREAM, stream, *ruled, batch=values["batch"], before=loads))
        else:
            chosen = await line.compute(stage.choose, batch, stream, cost=costs.head_of(batch))
            tasks.create_task(line.send_with_loads(0, TOKENS, *chosen, before=loads))
    if not is_last:
        await line.send(after, STREAM, None)


class FirstStage:
    """The ModelRunner of a pipeline, on the node of the first *stage*.

    It sends messages in *tasks*, so that the next batch can start before they are sent.
    """

    def __init__(self, line: LoadMeter, stage: Stage, tasks: asyncio.TaskGroup) -> None:
        self.meter = line
        self._stage = stage
        self._tasks = tasks
        self._last = line.size - 1
        self._chosen: asyncio.Queue[Sequence[list[Any]]] = asyncio.Queue()

    async def issue(self, issued: IssuedBatch) -> None:
        batch = issued.batch
        line = self.meter
        stage = self._stage
        tokens = torch.tensor(issued.tokens, dtype=torch.int64)
        stream = await line.compute(stage.forward, batch, tokens, cost=stage.costs.layers_of(batch))
        if not self._last:
            chosen = await line.compute(stage.choose, batch, stream, cost=stage.costs.head_of(batch))
            self._chosen.put_nowait([one.tolist() for one in chosen])
        else:
            content = stream, *ruled_tensors(batch)
            self._tasks.create_task(line.send_with_loads(1, STREAM, *content, batch=written(batch)))

    async def tokens(self) -> Sequence[list[Any]]:
        if not self._last:
            return await self._chosen.get()
        content = (await self.meter.recv(self._last, TOKENS)).payload
        self.meter.heard(str(content.values["loads"]))
        return [one.tolist() for one in content.tensors]

    async def end(self) -> None:
        if self._last:
            await self.meter.send(1, STREAM, None)
