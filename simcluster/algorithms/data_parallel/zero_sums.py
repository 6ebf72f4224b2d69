"""Gradients on their way to who owns them: each rank gets the sum of its part of every unit.

Around a ring, or straight to the owner, who adds up by step, unit and rank and refuses what is late or there already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from simcluster.algorithms.data_parallel.accumulator import Accumulator
from simcluster.algorithms.data_parallel.zero_held import Held
from simcluster.algorithms.lag import Late
from simcluster.collectives import all_gather, reduce_scatter
from simcluster.payload import pack
from simcluster.transport import ANY, Transport
from simcluster.workloads.layers.units import Unit
from simcluster.workloads.saved import Sharded


class Sums:
    """Of the gradients of *steps* steps; *group* has the tasks. In *stage* 0 every rank gets all parts of the sum."""

    def __init__(
        self,
        node: Transport,
        units: Sequence[Unit],
        schedule: str,
        stage: int,
        group: asyncio.TaskGroup,
        steps: int,
        held: Held,
    ) -> None:
        self.units, self.held, self.at_once = units, held, stage >= 2
        self._node, self._schedule, self.whole, self._group = node, schedule, stage == 0, group
        self._accumulator = Accumulator(node.size)
        self._complete: dict[tuple[int, int], asyncio.Future[Tensor]] = {}
        if schedule == "direct":
            group.create_task(self._receive(steps * len(units) * (node.size - 1)))

    def again(self, step: int, loss: float, totals: Sequence[Tensor]) -> Gradient:
        """Return a gradient whose sums a checkpoint has."""
        gradient = Gradient(self, step, loss)
        gradient.totals = dict(enumerate(totals))
        self.held.take("gradients", sum(total.nbytes for total in totals))
        return gradient

    def begin(self, step: int, unit: int, vector: Tensor) -> asyncio.Task[Tensor]:
        """Begins to sum *vector*; the task returns this rank's part, or all of it."""
        return self._group.create_task(self._sum(step, unit, vector))

    async def _sum(self, step: int, unit: int, vector: Tensor) -> Tensor:
        tag = f"gradients/{step}/{unit}"
        if self._schedule == "ring":
            part = await reduce_scatter(self._node, vector, tag)
        else:
            part = await self._to_owners(step, unit, vector)
        return torch.cat(await all_gather(self._node, part, f"{tag}/whole")) if self.whole else part

    async def _to_owners(self, step: int, unit: int, vector: Tensor) -> Tensor:
        node, parts = self._node, vector.tensor_split(self._node.size)
        complete = self._future(step, unit)
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
        """Whether the contribution was taken; the last one completes the sum."""
        taken = self._accumulator.add(step, unit, rank, part) == "taken"
        if taken and self._accumulator.is_complete(step, unit):
            self._future(step, unit).set_result(self._accumulator.take(step, unit))
            del self._complete[step, unit]
        return taken

    def _future(self, step: int, unit: int) -> asyncio.Future[Tensor]:
        if (step, unit) not in self._complete:
            self._complete[step, unit] = asyncio.get_running_loop().create_future()
        return self._complete[step, unit]


class Gradient(Late):
    """One rank's gradient of one step, unit by unit, until its sum has been used."""

    def __init__(self, sums: Sums, step: int, loss: float) -> None:
        super().__init__(step, [], loss)
        self._sums, self._held = sums, sums.held
        self._vectors: dict[int, Tensor] = {}  # complete, not yet sent
        self._in_flight: dict[int, asyncio.Task[Tensor]] = {}
        self.totals: dict[int, Tensor] = {}

    def keep(self, gradient: Tensor) -> Tensor:
        """*gradient* of a parameter, which is held from now on."""
        self._held.take("gradients", gradient.nbytes)
        return gradient

    async def leave(self, unit: Unit, vector: Tensor) -> None:
        """The gradient of *unit* is complete. From stage 2 on it leaves at once, when the one before it has arrived."""
        if not self._sums.at_once:
            self._vectors[unit.number] = vector
            return
        for earlier in list(self._in_flight):
            await self._arrive(earlier)
        self._in_flight[unit.number] = self._sums.begin(self.step, unit.number, vector)

    def leave_all(self) -> None:
        """All that was kept leaves, the last layers' first."""
        for number in list(self._vectors):
            self._in_flight[number] = self._sums.begin(self.step, number, self._vectors.pop(number))

    async def results(self) -> list[Tensor]:
        """Hand over this rank's part of the sum of every unit, or all of it; by unit."""
        await self.saved()
        return [self.totals.pop(unit.number) for unit in self._sums.units]

    async def saved(self) -> list[Any]:
        """Return the same, marked as parts unless they are all of it, and still hold it."""
        for number in list(self._in_flight):
            await self._arrive(number)
        totals = [self.totals[unit.number] for unit in self._sums.units]
        return totals if self._sums.whole else [Sharded(total) for total in totals]

    async def _arrive(self, number: int) -> None:
        """Waits for a sum, which takes the place of this rank's own gradient."""
        self.totals[number] = total = await self._in_flight.pop(number)
        self._held.give("gradients", self._sums.units[number].size_bytes)
        self._held.take("gradients", total.nbytes)
