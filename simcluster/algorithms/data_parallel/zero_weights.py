"""Sharded parameters: each rank owns a part of every layer's parameters, updates it, and sends it
to all others.

The bytes that a rank holds are counted where the algorithm acquires and releases memory, not by the clock: a gradient
being summed is held until the algorithm waits for the sum. So the peak does not depend on the network's speed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

import torch
from torch import Tensor

from simcluster.algorithms.data_parallel.layer_units import LayerUnit, cut_into_units, in_order, units_of_layers
from simcluster.collectives import all_gather, flatten, unflatten
from simcluster.collectives.flat import unflatten_parts
from simcluster.transport import Transport
from simcluster.workloads import Replica
from simcluster.workloads.layers.layers import Layer

Kind = Literal["parameters", "optimizer", "gradients", "gathered"]


class HeldBytes:
    """A count of the bytes that a rank holds: the current number and the peak per kind, and the
    peak of the total.
    """

    def __init__(self) -> None:
        self.now: dict[Kind, int] = {"parameters": 0, "optimizer": 0, "gradients": 0, "gathered": 0}
        self.most = dict(self.now)
        self.peak_bytes = 0

    def take(self, kind: Kind, size_bytes: int) -> None:
        self.now[kind] += size_bytes
        self.most[kind] = max(self.most[kind], self.now[kind])
        self.peak_bytes = max(self.peak_bytes, sum(self.now.values()))

    def give(self, kind: Kind, size_bytes: int) -> None:
        """Count *size_bytes* of *kind* as released.

        Raise ValueError if fewer bytes are held, which means a counting error.
        """
        if size_bytes > self.now[kind]:
            raise ValueError(f"{size_bytes} bytes of {kind} given back, of {self.now[kind]} held")
        self.now[kind] -= size_bytes

    def metrics(self) -> dict[str, float]:
        """Return the peak of each kind, and of the total."""
        most = {f"{kind}_bytes": float(size_bytes) for kind, size_bytes in self.most.items()}
        return most | {"peak_bytes": float(self.peak_bytes)}


class ZeroWeights:
    """The weights that one rank holds.

    *mine* holds one vector per unit: the rank's part of the unit if *owned*, otherwise the whole
    unit.

    If *sharded*, the replica holds a layer's weights only while the layer is used; meanwhile the
    next *prefetch* layers are gathered.
    """

    def __init__(
        self, node: Transport, replica: Replica, owned: bool, sharded: bool, gather: str, prefetch: int, held: HeldBytes
    ) -> None:
        self._node = node
        self._replica = replica
        self._held = held
        self._owned, self._sharded = owned, sharded
        self._schedule = "naive" if gather == "broadcast" else gather
        self._prefetch = prefetch
        self.units = cut_into_units(replica)
        self._used_by = units_of_layers(replica, self.units)
        self._uses: deque[tuple[int, str | None]] = deque()
        self._coming: deque[asyncio.Task[list[Tensor | list[Tensor]]]] = deque()
        self._group: asyncio.TaskGroup | None = None
        self.mine: list[Tensor] = []
        for unit in self.units:
            vector = flatten(replica.initial(unit.places) if sharded else [replica.parameters[p] for p in unit.places])
            self.mine.append(vector.tensor_split(node.size)[node.rank].clone() if owned else vector)
        own_bytes = sum(vector.nbytes for vector in self.mine)
        held.take("parameters", own_bytes if sharded else sum(unit.size_bytes for unit in self.units))
        if not sharded:
            # The optimizer updates *mine*, which is separate from the replica's weights.
            held.take("optimizer", own_bytes)

    # If sharded, layers are gathered a few layers ahead of use and freed after use.

    def expect(self, step: int, group: asyncio.TaskGroup) -> None:
        """Announce the forward and the backward pass of *step*, so that layers can be gathered
        ahead in tasks of *group*.

        The first forward pass needs no messages: every rank drew those weights from the common seed.
        """
        if self._sharded:
            self._group, numbers = group, range(len(self._used_by))
            self._uses.extend((number, f"{step}/forward {number}" if step > 1 else None) for number in numbers)
            self._uses.extend((number, f"{step}/backward {number}") for number in reversed(numbers))

    @asynccontextmanager
    async def present(self, layer: Layer) -> AsyncIterator[None]:
        """Keep the weights of *layer* in the replica inside the `async with` block. Layers must be
        used in the order that `expect` announced.
        """
        if self._sharded:
            while self._uses and len(self._coming) <= self._prefetch:
                number, tag = self._uses.popleft()
                self._held.take("gathered", self._size_bytes(number))
                assert self._group is not None
                self._coming.append(self._group.create_task(self._gather(number, tag)))
            layer.fill(await self._coming.popleft())
        yield
        if self._sharded:
            self._replica.free(layer.parameters)
            self._held.give("gathered", self._size_bytes(layer.number))

    async def _gather(self, number: int, tag: str | None) -> list[Tensor | list[Tensor]]:
        """Return a layer's weights, each as a list of the parts that arrived: `Layer.fill` joins
        the parts in place.
        """
        places = self._replica.layers()[number].parameters
        if tag is None:
            # Clone: a tied weight may already be in place for another layer, which will free it.
            return [weights.clone() for weights in self._replica.initial(places)]
        found: dict[int, list[Tensor]] = {}
        for unit in self._used_by[number]:
            parts, like = await self._parts(unit, tag), [self._replica.shapes[place] for place in unit.places]
            found |= dict(zip(unit.places, unflatten_parts(parts, like), strict=True))
        return [found[place] for place in places]

    def _size_bytes(self, number: int) -> int:
        return sum(unit.size_bytes for unit in self._used_by[number])

    # If replicated, each owner sends its updated weights to all ranks.

    async def share(self, tag: str) -> None:
        """Gather the updated weights of all owners into the replica.

        If sharded, gather unit by unit, since a rank may lack memory for a second whole model.
        """
        if self._sharded and self._node.size > 1:
            for unit in self.units:
                self._replica.put(await self._whole(unit, tag))
            return
        async with asyncio.TaskGroup() as group:
            coming = [group.create_task(self._whole(unit, tag)) for unit in self.units]
        found = {place: tensor for task in coming for place, tensor in task.result().items()}
        self._replica.load(in_order(self.units, found))

    async def _whole(self, unit: LayerUnit, tag: str) -> dict[int, Tensor]:
        vector = torch.cat(await self._parts(unit, tag)) if self._owned else self.mine[unit.number]
        like = [self._replica.shapes[place] for place in unit.places]
        return dict(zip(unit.places, unflatten(vector, like), strict=True))

    async def _parts(self, unit: LayerUnit, tag: str) -> list[Tensor]:
        tag = f"weights/{tag}/{unit.number}"
        return await all_gather(self._node, self.mine[unit.number], tag, schedule=self._schedule)
