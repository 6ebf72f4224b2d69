"""Gradients on their way to their owners: each rank gets the sum of its part of every unit.

They travel by a schedule of the reduce-scatter, or directly to the owner, which adds them up by step, unit and rank
and refuses late and duplicate ones.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from simcluster.algorithms.data_parallel.accumulator import Accumulator
from simcluster.algorithms.data_parallel.layer_units import LayerUnit
from simcluster.algorithms.data_parallel.zero_weights import HeldBytes
from simcluster.algorithms.steps import Late
from simcluster.collectives import all_gather, reduce_scatter
from simcluster.payload import pack
from simcluster.transport import ANY, Transport
from simcluster.workloads.saved import ShardedTensor


class Sums:
    """Sums of the gradients of *steps* steps; *group* holds the tasks. In *stage* 0 every rank gets the whole sum."""

    def __init__(
        self, node: Transport, units: Sequence[LayerUnit], schedule: str, stage: int, group: asyncio.TaskGroup,
        steps: int, held: HeldBytes,
    ) -> None:  # fmt: skip
        self.units, self.held, self.at_once = units, held, stage >= 2
        self._node, self._schedule, self.whole, self._group = node, schedule, stage == 0, group
        self._accumulator = Accumulator(node.size)
        self._complete = defaultdict[tuple[int, int], asyncio.Future[Tensor]](asyncio.get_running_loop().create_future)
        if schedule == "direct":
            group.create_task(self._receive(steps * len(units) * (node.size - 1)))

    def again(self, step: int, loss: float, totals: Sequence[Tensor]) -> Gradient:
        """Return a gradient with the sums that a checkpoint holds."""
        gradient = Gradient(self, step, loss)
        gradient.totals = dict(enumerate(totals))
        self.held.take("gradients", sum(total.nbytes for total in totals))
        return gradient

    def begin(self, step: int, unit: int, vector: Tensor) -> asyncio.Task[Tensor]:
        """Start summing *vector*; the task returns this rank's part of the sum, or all of it."""
        return self._group.create_task(self._sum(step, unit, vector))

    async def _sum(self, step: int, unit: int, vector: Tensor) -> Tensor:
        tag = f"gradients/{step}/{unit}"
        if self._schedule == "direct":
            part = await self._to_owners(step, unit, vector)
        else:
            part = await reduce_scatter(self._node, vector, tag, schedule=self._schedule)
        return torch.cat(await all_gather(self._node, part, f"{tag}/whole")) if self.whole else part

    async def _to_owners(self, step: int, unit: int, vector: Tensor) -> Tensor:
        node, parts = self._node, vector.tensor_split(self._node.size)
        complete = self._complete[step, unit]
        async with asyncio.TaskGroup() as group:
            for owner in range(node.size):
                if owner != node.rank:
                    group.create_task(node.send(owner, "gradients", pack(parts[owner], step=step, unit=unit)))
            self._add(step, unit, node.rank, parts[node.rank])
        return await complete

    async def _receive(self, expected: int) -> None:
        while expected:
            message = await self._node.recv(ANY, "gradients")
            expected -= self._add(message["step"], message["unit"], message.source, message.tensor)

    def _add(self, step: int, unit: int, rank: int, part: Tensor) -> bool:
        """Return whether the contribution was accepted; the last one completes the sum."""
        taken = self._accumulator.add(step, unit, rank, part) == "taken"
        if taken and self._accumulator.is_complete(step, unit):
            self._complete[step, unit].set_result(self._accumulator.take(step, unit))
            del self._complete[step, unit]
        return taken


class Gradient(Late):
    """One rank's gradient of one step, unit by unit, until its sum is used."""

    def __init__(self, sums: Sums, step: int, loss: float) -> None:
        super().__init__(step, [], loss)
        self._sums, self._held = sums, sums.held
        self._vectors: dict[int, Tensor] = {}  # complete, not yet sent
        self._in_flight: dict[int, asyncio.Task[Tensor]] = {}
        self.totals: dict[int, Tensor] = {}

    def keep(self, gradient: Tensor) -> Tensor:
        """Count a parameter's *gradient* as held from now on, and return it."""
        self._held.take("gradients", gradient.nbytes)
        return gradient

    async def leave(self, unit: LayerUnit, vector: Tensor) -> None:
        """Take the complete gradient of *unit*. From stage 2 on, send it as soon as the previous one has arrived."""
        if not self._sums.at_once:
            self._vectors[unit.number] = vector
            return
        for earlier in list(self._in_flight):
            await self._arrive(earlier)
        self._in_flight[unit.number] = self._sums.begin(self.step, unit.number, vector)

    def leave_all(self) -> None:
        """Send everything that was kept, the last layers' first."""
        for number in list(self._vectors):
            self._in_flight[number] = self._sums.begin(self.step, number, self._vectors.pop(number))

    async def results(self) -> list[Tensor]:
        """Hand over this rank's part of every unit's sum, or all of it, by unit."""
        await self.saved()
        return [self.totals.pop(unit.number) for unit in self._sums.units]

    async def saved(self) -> list[Any]:
        """Return the same without releasing it, marked as parts unless it is whole."""
        for number in list(self._in_flight):
            await self._arrive(number)
        totals = [self.totals[unit.number] for unit in self._sums.units]
        return totals if self._sums.whole else [ShardedTensor(total) for total in totals]

    async def _arrive(self, number: int) -> None:
        """Wait for a sum, which replaces this rank's own gradient."""
        self.totals[number] = total = await self._in_flight.pop(number)
        self._held.give("gradients", self._sums.units[number].size_bytes)
        self._held.take("gradients", total.nbytes)
