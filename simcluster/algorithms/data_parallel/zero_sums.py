"""Gradients on their way to who owns them: each rank gets the sum of its part of every unit.

Around a ring, or straight to the owner, who adds up by step, unit and rank and refuses what is late or there already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import torch
from torch import Tensor

from simcluster.algorithms.data_parallel.accumulator import Accumulator
from simcluster.algorithms.data_parallel.zero_held import Held
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

    def of(self, step: int) -> Gradient:
        return Gradient(self, step)

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


class Gradient:
    """One rank's gradient of one step, unit by unit, until its sum has been used."""

    def __init__(self, sums: Sums, step: int) -> None:
        self._sums, self._step, self._held = sums, step, sums.held
        self._vectors: dict[int, Tensor] = {}  # complete, not yet sent
        self._under_way: dict[int, asyncio.Task[Tensor]] = {}
        self._totals: dict[int, Tensor] = {}

    def keep(self, gradient: Tensor) -> Tensor:
        """*gradient* of a parameter, which is held from now on."""
        self._held.take("gradients", gradient.nbytes)
        return gradient

    async def leave(self, unit: Unit, vector: Tensor) -> None:
        """The gradient of *unit* is complete. From stage 2 on it leaves at once, when the one before it has arrived."""
        if not self._sums.at_once:
            self._vectors[unit.number] = vector
            return
        for earlier in list(self._under_way):
            await self._arrive(earlier)
        self._under_way[unit.number] = self._sums.begin(self._step, unit.number, vector)

    def leave_all(self) -> None:
        """All that was kept leaves, the last layers' first."""
        for number in list(self._vectors):
            self._under_way[number] = self._sums.begin(self._step, number, self._vectors.pop(number))

    async def sums(self) -> list[Tensor]:
        """This rank's part of the sum of every unit, or all of it; by unit."""
        for number in list(self._under_way):
            await self._arrive(number)
        return [self._totals[unit.number] for unit in self._sums.units]

    async def parts(self) -> list[Tensor | Sharded]:
        """The same, of which it is said that they are parts, unless they are all of it."""
        return [total if self._sums.whole else Sharded(total) for total in await self.sums()]

    def arrived(self, totals: Sequence[Tensor]) -> Gradient:
        """This gradient, of which the sums are there already."""
        self._totals = dict(enumerate(totals))
        self._held.take("gradients", sum(total.nbytes for total in totals))
        return self

    def forget(self) -> None:
        """The sums have been used."""
        self._held.give("gradients", sum(total.nbytes for total in self._totals.values()))
        self._totals.clear()

    async def _arrive(self, number: int) -> None:
        """Waits for a sum, which takes the place of this rank's own gradient."""
        self._totals[number] = total = await self._under_way.pop(number)
        self._held.give("gradients", self._sums.units[number].size_bytes)
        self._held.take("gradients", total.nbytes)
