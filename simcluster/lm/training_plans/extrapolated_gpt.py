"""A timing replica of a GPT with many equal blocks, extrapolated from GPTs with one and two blocks.

Costs and memory are linear in the number of blocks and in the samples of a batch, so counting those
of 80 layers takes no longer than those of 2. Tests compare it with a replica that counts every
block.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import cached_property
from itertools import pairwise
from operator import mul
from typing import Any, TypeVar

import torch
from torch import Tensor

from simcluster.transport import Cost
from simcluster.workloads import Batch
from simcluster.workloads.costs.memory import MemoryBytes
from simcluster.workloads.layers.activations import Held
from simcluster.workloads.layers.layer_costs import LayerCost
from simcluster.workloads.layers.layers import Layer, Layers
from simcluster.workloads.layers.part import ParameterPart, PartCost
from simcluster.workloads.layers.tensor_shard import ShardedLayer, ShardedLayerCost, TensorShard
from simcluster.workloads.timing_replica import TimingReplica
from simcluster.workloads.workload import Workload

T = TypeVar("T")

SHORT = 2
"""Number of blocks of the counted model. A model with at most that many is counted directly."""

FEW = 1000
"""Number of elements of the parameter with which an optimizer step is counted."""

TABLES, LAYERS = 2, 2
"""Number of parameters before the first block (all in one layer), and of layers per block."""


def grown(low: Any, high: Any, steps: int) -> Any:
    """Extrapolate linearly: return the value at *steps*, from *low* at 0 and *high* at 1.

    The values are numbers, or records or lists of numbers.
    """
    if isinstance(low, (Cost, MemoryBytes, LayerCost, ShardedLayerCost)):
        names = [field.name for field in fields(low)]
        return replace(low, **{name: grown(getattr(low, name), getattr(high, name), steps) for name in names})
    if isinstance(low, list):
        return [grown(a, b, steps) for a, b in zip(low, high, strict=True)]
    return low + (high - low) * steps if isinstance(low, (int, float)) else low


def short_replica(workload: Workload, sizes: Sequence[int], rank: int = 0) -> TimingReplica:
    """Return the replica of *rank* with batches of *sizes*. It shares the sketch of *workload*."""
    replica = sized(workload, sizes).replica(rank, len(sizes), 0, steps=2, numerics="none")
    assert isinstance(replica, TimingReplica), "without numerics"
    return replica


def sized(workload: Workload, sizes: Sequence[int]) -> Workload:
    """Return *workload* with the batch sizes *sizes*, by rank."""
    made = workload.with_batches(sizes)
    made.__dict__["_sketches"] = workload._sketches  # Sketches do not depend on batches.
    return made


class GptBlocks:
    """A GPT with *count* equal blocks. *make* returns its workload with any number of blocks."""

    def __init__(self, make: Callable[[int], Workload], count: int) -> None:
        self.count = count
        self.is_short = count <= SHORT
        self.high = make(min(count, SHORT))
        self.low = self.high if self.is_short else make(SHORT - 1)
        self._counted: dict[Any, Any] = {}

    def replica(self, sizes: Sequence[int], rank: int = 0) -> TimingReplica:
        """Return the timing replica of *rank*; *sizes* has the batch size of each rank."""
        return short_replica(self.high, sizes, rank) if self.is_short else ExtrapolatedGpt(self, sizes, rank)

    def memory(self, samples: int) -> MemoryBytes:
        """Return the memory of a node that trains the whole model on batches of *samples*."""
        found = self.total("memory", lambda workload, of: sized(workload, [of]).memory("none"), samples)
        assert isinstance(found, MemoryBytes)
        return found

    def total(self, what: object, of: Callable[[Workload, int], T], samples: int = 1) -> T:
        """Return the value of *of* for all blocks and *samples*, extrapolated from a few of each.

        A batch of one sample is counted directly, because torch copies less for it. *what* is the
        key of the cache.
        """

        def whole(samples: int) -> T:
            high = of(self.high, samples)
            found: T = high if self.is_short else grown(of(self.low, samples), high, self.count - SHORT + 1)
            return found

        return self._by_samples(("total", what), whole, samples)

    def listed(self, what: object, of: Callable[[Workload, int], list[T]], samples: int) -> list[T]:
        """Return the list of *of* (an entry per layer) for *samples*, extended to all blocks."""
        return self._by_samples(("listed", what), lambda n: self.stretched(of(self.high, n), 1, LAYERS), samples)

    def _by_samples(self, key: object, of: Callable[[int], T], samples: int) -> T:
        if samples > 3:
            found: T = grown(self._by_samples(key, of, 2), self._by_samples(key, of, 3), samples - 2)
            return found
        if (key, samples) not in self._counted:
            self._counted[key, samples] = of(samples)
        known: T = self._counted[key, samples]
        return known

    def part_cost(self, numbers: Sequence[int]) -> PartCost:
        """Return the costs of a part with *numbers* elements in its parameters.

        The optimizer treats all parameters alike, so its costs are linear in the number and the
        sizes of the parameters.
        """
        if not numbers:
            return self.high.sketch.part([])
        parts = one, two, three = [self._part_of(*sizes) for sizes in ((FEW,), (2 * FEW,), (FEW, 2 * FEW))]
        steps, more = sum(numbers) / FEW - len(numbers), len(numbers) - 1
        times = 1 - steps, steps - more, more
        apply = _sum(times, [part.apply for part in parts])
        norm = _sum(times, [part.norm for part in parts])
        state = sum(map(mul, times, [part.state_bytes for part in parts]))
        # During the step of a parameter, the last temporary of the previous parameter still exists.
        each, left = two.scratch_bytes - one.scratch_bytes, three.scratch_bytes - two.scratch_bytes
        base = one.scratch_bytes - each
        most = max(base + (now * each + before * left) / FEW for before, now in pairwise([0, *numbers]))
        return PartCost(apply, norm, round(state), round(most))

    def _part_of(self, *numbers: int) -> PartCost:
        return self.high.sketch.part([torch.empty(number, device="meta") for number in numbers])

    def stretched(self, found: Sequence[T], head: int, per: int) -> list[T]:
        """Return *found* for all blocks, by repeating the entries of the second block.

        *found* has *head* entries before the first block and *per* entries in each block.
        """
        if self.is_short:
            return list(found)
        first, end = head + per, head + 2 * per
        return [*found[:first], *[*found[first:end]] * (self.count - SHORT + 1), *found[end:]]


class ExtrapolatedGpt(TimingReplica):
    """A TimingReplica with the costs and the memory of all *blocks*. It cannot train."""

    def __init__(self, blocks: GptBlocks, sizes: Sequence[int], rank: int) -> None:
        self._short = short_replica(blocks.high, sizes, rank)
        self._blocks = blocks
        self.__dict__.update(vars(self._short) | {"_layers": None})
        self._per = len(blocks.high.sketch.parameters) - len(blocks.low.sketch.parameters)

    @cached_property
    def shapes(self) -> list[Tensor]:
        return self._blocks.stretched(self._short.shapes, TABLES, self._per)

    @cached_property
    def parameters(self) -> list[Tensor]:
        return [shape.detach() for shape in self.shapes]

    def layers(self) -> Layers:
        if self._layers is None:
            found = copy.copy(self._short.layers())
            found[:] = [layer for layer in self._moved(found, 1, LAYERS) if layer is not None]
            found._places = {}
            found._modules = self._blocks.stretched(found.modules, 1, LAYERS)
            found._parameters = [
                list(zip(layer.parameters, module.parameters(), strict=True))
                for layer, module in zip(found, found.modules, strict=True)
            ]
            self._layers = found
        return self._layers

    def gradient_cost(self, batch: Batch) -> Cost:
        return self._blocks.total("gradient", lambda w, n: _of(w, n).gradient_cost(_batch(w, n)), len(batch))

    def apply_cost(self) -> Cost:
        return self._blocks.total("apply", lambda workload, n: _of(workload, n).apply_cost())

    def layer_costs(self, batch: Batch) -> list[LayerCost]:
        return self._blocks.listed("layers", lambda w, n: _of(w, n).layer_costs(_batch(w, n)), len(batch))

    def rows_cost(self, number: int, name: str, rows: int, width: int, ranks: int = 1) -> LayerCost:
        return self._short.rows_cost(LAYERS, name, rows, width, ranks)  # all layers of experts are alike

    def split_dims(self, number: int, name: str, ranks: int) -> dict[str, int]:
        return self._short.split_dims(LAYERS, name, ranks)

    def held(self, batch: Batch) -> list[Held]:
        return self._held(self._short.held(batch), LAYERS)

    def part(self, places: Sequence[int]) -> ParameterPart:
        return self._timed_part(places, [self.shapes[place] for place in places])

    def tensor_shard(self, size: int | None = None) -> TensorShard:
        size = size or len(self.batch_sizes)
        short = self._short.tensor_shard(size)
        blocks = self._blocks
        found = copy.copy(short)
        cut = blocks.stretched([short.cuts.get(place) for place in range(len(self._short.shapes))], TABLES, self._per)
        found.cuts = {place: how for place, how in enumerate(cut) if how is not None}
        found.parameters = own = blocks.stretched(short.parameters, TABLES, self._per)
        found._make_part = lambda: self._timed_part(range(len(own)), own)
        wholes = self._moved([piece.whole for piece in short.pieces], 1, LAYERS)
        shards = self._moved([piece.shard for piece in short.pieces], 1, LAYERS)
        pieces = blocks.stretched(short.pieces, 1, LAYERS)
        found.pieces = [
            ShardedLayer(whole, shard, piece.bias, piece.bias_place, piece.residual)
            for whole, shard, piece in zip(wholes, shards, pieces, strict=True)
        ]
        (last,) = self._moved([short.last], 1, LAYERS, after=True)
        assert last is not None
        found.last = last

        def costs(workload: Workload, samples: int) -> list[ShardedLayerCost]:
            return short_replica(workload, [samples]).tensor_shard(size).costs(_batch(workload, samples))

        found.costs = lambda batch: blocks.listed(("shares", size), costs, len(batch))
        # A layer has an entry for what is whole, such as its norm, and one for its shard.
        parts = [part for piece in short.pieces[1 : 1 + LAYERS] for part in (piece.whole, piece.shard)]
        found.held = lambda batch: self._held(short.held(batch), len(parts) - parts.count(None))
        return found

    def _moved(self, layers: Sequence[Layer | None], head: int, per: int, *, after: bool = False) -> list[Layer | None]:
        """Return *layers* for all blocks, with the indices of their parameters shifted.

        If *after*, all of *layers* come after the blocks.
        """
        found: list[Layer | None] = []
        more = self._blocks.count - SHORT
        for number, layer in enumerate(layers if after else self._blocks.stretched(layers, head, per)):
            block = more if after else min(max(0, (number - head) // per - 1), more)
            own = copy.copy(layer)
            if own is not None:  # A tied embedding table stays before the blocks.
                own.parameters = [place + block * self._per * (place >= TABLES) for place in own.parameters]
                own.number = number
            found.append(own)
        return found

    def _held(self, found: Sequence[Held], per: int) -> list[Held]:
        """Return *found*, which has the storages that each layer holds, for all blocks.

        The bytes that a layer shares with a neighbour become one storage, its other bytes another
        one.
        """
        common = [0, *(sum(b[key] for key in a.keys() & b.keys()) for a, b in pairwise(found)), 0]
        rest = [sum(held.values()) - common[i] - common[i + 1] for i, held in enumerate(found)]
        before, own = (self._blocks.stretched(sizes, 1, per) for sizes in (common[:-1], rest))
        return [
            {2 * i: size, 2 * i + 1: before[i], 2 * i + 3: before[i + 1] if i + 1 < len(before) else 0}
            for i, size in enumerate(own)
        ]

    def _timed_part(self, places: Sequence[int], parameters: Sequence[Tensor]) -> ParameterPart:
        counted = self._blocks.part_cost([parameter.numel() for parameter in parameters])
        return ParameterPart(places, parameters, self._sketch.clip_norm, lambda _: None, counted, device="meta")


def _sum(times: Sequence[float], costs: Sequence[Cost]) -> Cost:
    """Return the sum of *costs*, weighted by *times*."""
    names = ("flops", "memory_bytes", "operators")
    total = {name: round(sum(map(mul, times, [getattr(cost, name) for cost in costs]))) for name in names}
    return replace(costs[0], **total)


def _of(workload: Workload, samples: int) -> TimingReplica:
    return short_replica(workload, [samples])


def _batch(workload: Workload, samples: int) -> Batch:
    return next(_of(workload, samples).batches())
