"""The two passes of a rank of a pipeline: micro-batches go from stage to stage, forward and back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from simcluster.algorithms.model_parallel.pipeline_plan import Task
from simcluster.payload import Payload, pack
from simcluster.transport import Transport
from simcluster.workloads import Batch
from simcluster.workloads.layers.layer_costs import LayerCost
from simcluster.workloads.layers.layers import Layer


class TrainingStage(Protocol):
    """Consecutive layers, as a rank computes them on a micro-batch, which has a *name* of its own."""

    async def forward(self, inputs: Tensor, micro: Batch, name: str) -> Tensor:
        """Return the outputs of the last layer."""

    async def loss(self, inputs: Tensor, micro: Batch, name: str) -> float:
        """Return the mean loss, if these are the last layers of the model."""

    async def backward(
        self, gradient: Tensor | None, micro: Batch, name: str, share: float, sums: Mapping[int, Tensor]
    ) -> Tensor | None:
        """Return the gradient of the inputs, and add those of the parameters to *sums*. After
        `loss`, *share* is the micro-batch's share of the mean over a batch.
        """


@dataclass(frozen=True)
class LayerStage:
    """A stage that one rank computes alone: *layers*, merged, with their *cost* for a micro-batch."""

    node: Transport
    layers: Layer
    cost: LayerCost

    async def forward(self, inputs: Tensor, micro: Batch, name: str) -> Tensor:
        return await self.node.compute(self.layers.forward, inputs, name, cost=self.cost.forward)

    async def loss(self, inputs: Tensor, micro: Batch, name: str) -> float:
        return await self.node.compute(self.layers.loss, inputs, micro.targets, name, cost=self.cost.forward)

    async def backward(
        self, gradient: Tensor | None, micro: Batch, name: str, share: float, sums: Mapping[int, Tensor]
    ) -> Tensor | None:
        own = [sums[place] for place in self.layers.parameters]
        below, _ = await self.node.compute(self.layers.backward, gradient, name, share, own, cost=self.cost.backward)
        return below


async def flush(
    line: Transport, mine: Sequence[TrainingStage], order: Sequence[Task], micros: Sequence[Batch], step: int,
    sums: Mapping[int, Tensor], sends: asyncio.TaskGroup,
) -> tuple[float, int]:  # fmt: skip
    """Add the gradients of all *micros* to *sums*; return (the mean loss, the peak number of stashed
    micro-batches).

    *line*: the p ranks in the order of their stages. Stage s is *mine* [s // p] of rank s % p.
    """
    p, i = line.size, line.rank
    m = len(micros)
    last = p * len(mine) - 1
    kept: dict[str, Payload] = {}
    losses = [0.0] * m
    stashed = most_stashed = 0

    def hand(s: int, tag: str, content: Payload) -> None:
        if s % p == i:
            kept[tag] = content  # data for a stage of the same rank stays here
        else:
            sends.create_task(line.send(s % p, tag, content))  # sent while this rank continues

    async def take(s: int, tag: str) -> Payload:
        return kept.pop(tag) if s % p == i else (await line.recv(s % p, tag)).payload

    for way, chunk, k in order:
        s, stage, name = chunk * p + i, mine[chunk], f"{step}/{k}"
        if way == "forward":
            # Phase 1: activations of micro-batch k from the previous stage, and on to the next.
            inputs = micros[k].inputs if s == 0 else (await take(s - 1, f"activations/{step}/{s}/{k}")).tensors[0]
            if s == last:
                losses[k] = await stage.loss(inputs, micros[k], name)
            else:
                hand(s + 1, f"activations/{step}/{s + 1}/{k}", pack(await stage.forward(inputs, micros[k], name)))
            stashed += 1
            most_stashed = max(most_stashed, stashed)
        else:
            # Phase 2: their gradient and the loss from the next stage; a micro-batch is 1/m of the batch.
            behind = await take(s + 1, f"gradients/{step}/{s}/{k}") if s < last else pack(loss=losses[k])
            losses[k] = behind.values["loss"]  # type: ignore[assignment]
            above = behind.tensors[0] if behind.tensors else None
            below = await stage.backward(above, micros[k], name, 1 / m, sums)
            stashed -= 1
            if s > 0:
                handed = [] if below is None else [below]
                hand(s - 1, f"gradients/{step}/{s - 1}/{k}", pack(*handed, loss=losses[k]))
    return sum(losses) / m, most_stashed


async def summed(line: Transport, ranks: Sequence[int], mine: Tensor, tag: str) -> Tensor:
    """Return the sum over *ranks*, added in rank order: bit-identical on all of them."""
    async with asyncio.TaskGroup() as group:
        for rank in ranks:
            if rank != line.rank:
                group.create_task(line.send(rank, tag, mine))
        parts = [mine if rank == line.rank else (await line.recv(rank, tag)).tensor for rank in ranks]
    return torch.stack(parts).sum(0)
