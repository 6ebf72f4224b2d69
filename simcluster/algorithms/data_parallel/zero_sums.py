"""Sums of gradients: for every unit, each rank gets the sum of the part that it owns.

Gradients travel by a schedule of the reduce-scatter, or directly to the owner. The owner adds them
up by step, unit and rank, and refuses late and duplicate contributions.
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
from simcluster.algorithms.data_parallel.zero_compression import PartCodecs
from simcluster.algorithms.data_parallel.zero_weights import HeldBytes
from simcluster.algorithms.steps import Late
from simcluster.collectives import all_gather, reduce_scatter
from simcluster.payload import pack
from simcluster.transport import ANY, Transport
from simcluster.workloads.saved import ShardedTensor


class Sums:
    """The sums of the gradients of *steps* steps, computed in tasks of *group*.

    In *stage* 0 every rank gets the whole sum, not a part. With *codecs*, parts are compressed on
    the way to their owners, and *schedule* has no effect.
    """

    def __init__(
        self, node: Transport, units: Sequence[LayerUnit], schedule: str, stage: int, group: asyncio.TaskGroup,
        steps: int, held: HeldBytes, codecs: PartCodecs | None,
    ) -> None:  # fmt: skip
        self.units = units
        self.held = held
        self.at_once = stage >= 2
        self._node = node
        self._schedule = schedule
        self.whole = stage == 0
        self._group = group
        self._codecs = codecs
        self._accumulator = Accumulator(node.size)
        self._complete = defaultdict[tuple[int, int], asyncio.Future[Tensor]](asyncio.get_running_loop().create_future)
        if schedule == "direct" and codecs is None:
            group.create_task(self._receive(steps * len(units) * (node.size - 1)))

    def again(self, step: int, loss: float, totals: Sequence[Tensor]) -> Gradient:
        """Restore the gradient of *step* from *totals*, the sums that a checkpoint holds."""
        gradient = Gradient(self, step, loss)
        gradient.totals = dict(enumerate(totals))
        self.held.take("gradients", sum(total.nbytes for total in totals))
        return gradient

    def begin(self, step: int, unit: int, vector: Tensor) -> asyncio.Task[Tensor]:
        """Start a task that sums *vector* over ranks and returns this rank's part of the sum, or
        the whole sum in stage 0.
        """
        return self._group.create_task(self._sum(step, unit, vector))

    async def _sum(self, step: int, unit: int, vector: Tensor) -> Tensor:
        tag = f"gradients/{step}/{unit}"
        if self._codecs is not None:
            part = await self._codecs.sum(unit, vector, tag)
        elif self._schedule == "direct":
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
        """Add a contribution, and complete the sum if it is the last.

        Return whether it was accepted.
        """
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

    @property
    def unfinished(self) -> bool:
        return not all(part.done() for part in self._in_flight.values())

    def keep(self, gradient: Tensor) -> Tensor:
        """Count the bytes of a parameter's *gradient* as held, and return it."""
        self._held.take("gradients", gradient.nbytes)
        return gradient

    async def leave(self, unit: LayerUnit, vector: Tensor) -> None:
        """Take the complete gradient of *unit*.

        From stage 2 on, wait for the sum of the previous unit, then send this gradient. In earlier
        stages, keep it until `leave_all`.
        """
        if not self._sums.at_once:
            self._vectors[unit.number] = vector
            return
        for earlier in list(self._in_flight):
            await self._arrive(earlier)
        self._in_flight[unit.number] = self._sums.begin(self.step, unit.number, vector)

    def leave_all(self) -> None:
        """Send all gradients that have not been sent, the last layers' first."""
        for number in list(self._vectors):
            self._in_flight[number] = self._sums.begin(self.step, number, self._vectors.pop(number))

    async def results(self) -> list[Tensor]:
        """Wait for this rank's part of every unit's sum, or for the whole sum in stage 0; return
        and release them.
        """
        await self.saved()
        return [self.totals.pop(unit.number) for unit in self._sums.units]

    async def saved(self) -> list[Any]:
        """Wait for the sums and return them as a checkpoint keeps them: marked as shards unless
        whole, and without releasing them.
        """
        for number in list(self._in_flight):
            await self._arrive(number)
        totals = [self.totals[unit.number] for unit in self._sums.units]
        return totals if self._sums.whole else [ShardedTensor(total) for total in totals]

    async def _arrive(self, number: int) -> None:
        """Wait for the sum of unit *number*, which replaces this rank's own gradient."""
        self.totals[number] = total = await self._in_flight.pop(number)
        self._held.give("gradients", self._sums.units[number].size_bytes)
        self._held.take("gradients", total.nbytes)
