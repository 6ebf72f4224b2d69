"""The seconds of a training step of each algorithm, and the bytes that all ranks together send in it.

What a rank computes costs what the algorithm says that it costs, on the roofline of its device. A step is one of the
steady state: from the end of a step to the end of the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch

from simcluster.algorithms.data_parallel.layer_units import cut_into_units, units_of_layers
from simcluster.algorithms.local_steps.local_sgd import changed
from simcluster.algorithms.local_steps.rounds import adopt, nesterov, outer_gradient
from simcluster.algorithms.model_parallel.placement import StageSearch
from simcluster.algorithms.timed import cost_of
from simcluster.collectives.flat import lengths_of
from simcluster.lm.plan.times import all_reduce
from simcluster.lm.training_plans.ring import NUMBER_BYTES, RingHop, RingRounds, all_reduced_s, period_s, ring
from simcluster.lm.training_plans.tall import GptBlocks
from simcluster.topology import Device, Topology
from simcluster.topology.model.duration import expected_s
from simcluster.transport import Cost
from simcluster.workloads.data.samples import Batch


@dataclass(frozen=True)
class StepTime:
    """A step takes *step_s*, *compute_s* of it on the rank that computes longest; all ranks send *sent_bytes*."""

    step_s: float
    compute_s: float
    sent_bytes: float


class RankGroup:
    """The ranks on nodes *names* of *topology*, each with its batch, out of *sizes*."""

    def __init__(self, topology: Topology, names: Sequence[str], blocks: GptBlocks, sizes: Sequence[int]) -> None:
        self.topology, self.names, self.blocks, self.sizes = topology, tuple(names), blocks, tuple(sizes)
        self.devices = [device_of(topology, name) for name in names]
        self.replica = blocks.replica(sizes)
        self.batches = cache(self._batch)

    def _batch(self, samples: int) -> Batch:
        return next(self.blocks.replica([samples]).batches())

    @cached_property
    def numbers(self) -> int:
        """The trainable numbers of the model."""
        return sum(shape.numel() for shape in self.replica.shapes)

    @cached_property
    def hops(self) -> list[RingHop]:
        return ring(self.topology, self.names)

    def on_each(self, cost: Callable[[int], Cost]) -> list[float]:
        """Return the seconds of *cost* of a rank's batch, for each rank."""
        return [expected_s(device, cost(size)) for device, size in zip(self.devices, self.sizes, strict=True)]

    @cached_property
    def rates(self) -> tuple[float, ...]:
        """The FLOPs per second of each rank in the gradient of its batch."""
        flops = [self.replica.gradient_cost(self.batches(size)).flops for size in self.sizes]
        seconds = self.on_each(lambda size: self.replica.gradient_cost(self.batches(size)))
        return tuple(a / b for a, b in zip(flops, seconds, strict=True))

    @cached_property
    def works_s(self) -> list[float]:
        """The seconds of a gradient and an optimizer step of the whole model, for each rank."""
        gradients_s = self.on_each(lambda size: self.replica.gradient_cost(self.batches(size)))
        applies_s = self.on_each(lambda _: self.replica.apply_cost())
        return [a + b for a, b in zip(gradients_s, applies_s, strict=True)]


def device_of(topology: Topology, name: str) -> Device:
    device = topology.nodes[name].device
    assert device is not None, "a worker has a device"
    return device


def all_reduce_dp(group: RankGroup, settings: dict[str, Any]) -> StepTime:
    """A gradient, an all-reduce of it, an optimizer step."""
    sent = 2 * (len(group.names) - 1) * NUMBER_BYTES * group.numbers
    return StepTime(_summed(group, group.works_s, settings["schedule"]), max(group.works_s), sent)


def _summed(group: RankGroup, works_s: Sequence[float], schedule: str) -> float:
    """Return the seconds of *works_s* and an all-reduce of as many numbers as the model has."""
    if len(works_s) == 1:
        return works_s[0]
    if schedule == "ring":
        return period_s(group.hops, group.numbers, works_s)
    return max(works_s) + all_reduce(group.topology, group.names).seconds(NUMBER_BYTES * group.numbers)


def local_sgd(group: RankGroup, settings: dict[str, Any]) -> StepTime:
    """*interval* steps of each rank alone, then the mean of their weights; per step, a part of a round."""
    vector, weights = torch.empty(group.numbers, device="meta"), group.replica.parameters
    extras = [
        cost_of(changed, vector, weights, 1.0), cost_of(torch.add, vector, vector), cost_of(adopt, weights, vector),
    ]  # fmt: skip
    return _rounds(group, settings, extras)


def diloco(group: RankGroup, settings: dict[str, Any]) -> StepTime:
    """*interval* steps of each rank alone, then an outer step along their mean movement."""
    vector, weights = torch.empty(group.numbers, device="meta"), group.replica.parameters
    rates = settings["outer_learning_rate"], settings["outer_momentum"]
    extras = [
        cost_of(outer_gradient, vector, weights),
        cost_of(nesterov, vector, vector, vector, *rates),
        cost_of(adopt, weights, vector),
    ]
    return _rounds(group, settings, extras)


def _rounds(group: RankGroup, settings: dict[str, Any], extras: Sequence[Cost]) -> StepTime:
    interval = settings["interval"]
    extras_s = [sum(expected_s(device, cost) for cost in extras) for device in group.devices]
    works_s = [interval * work + extra for work, extra in zip(group.works_s, extras_s, strict=True)]
    sent = 2 * (len(group.names) - 1) * NUMBER_BYTES * group.numbers
    round_s = _summed(group, works_s, settings["schedule"])
    return StepTime(round_s / interval, max(works_s) / interval, sent / interval)


def zero(group: RankGroup, settings: dict[str, Any]) -> StepTime:
    """A gradient summed at the owners of its parts, their optimizer steps, and the weights back, by *stage*.

    Layers count as on the slowest rank, and hops as the slowest one.
    """
    return _ZeroTimes(group, settings["stage"], settings["prefetch"]).step()


class _ZeroTimes:
    def __init__(self, group: RankGroup, stage: int, prefetch: int) -> None:
        self._stage, self._prefetch, self._n = stage, prefetch, len(group.names)
        replica = group.replica
        units = cut_into_units(replica)
        self._units = [unit.size_bytes // NUMBER_BYTES for unit in units]
        self._used = [[unit.number for unit in used] for used in units_of_layers(replica, units)]
        self._ended = {unit.layer: unit.number for unit in units}
        costs = {size: replica.layer_costs(group.batches(size)) for size in {*group.sizes}}
        layers = range(len(self._used))
        self._forward_s = [max(group.on_each(lambda size, i=i: costs[size][i].forward)) for i in layers]  # type: ignore[misc]
        self._backward_s = [max(group.on_each(lambda size, i=i: costs[size][i].backward)) for i in layers]  # type: ignore[misc]
        own = [torch.empty(lengths_of(numbers, self._n)[0], device="meta") for numbers in self._units]
        apply = replica.pieces(own).apply_cost()
        self._apply_s = max(expected_s(device, apply) for device in group.devices)
        self._rounds = RingRounds(group.hops)

    def step(self) -> StepTime:
        compute_s = sum(self._forward_s) + sum(self._backward_s) + self._apply_s
        gathered = sum(self._units[unit] for used in self._used for unit in used)
        sent = sum(self._units) + (2 * gathered if self._stage == 3 else sum(self._units))
        ends_s = [0.0, 0.0, 0.0]
        for i in (1, 2):
            ends_s[i] = self._sharded(ends_s[i - 1]) if self._stage == 3 else self._replicated(ends_s[i - 1])
        return StepTime(ends_s[2] - ends_s[1], compute_s, (self._n - 1) * NUMBER_BYTES * sent)

    def _replicated(self, now_s: float) -> float:
        """Return the end of a step that begins at *now_s*, with the weights on every rank."""
        now_s += sum(self._forward_s)
        now_s = self._updated(*self._summed(now_s))
        gathers = [self._rounds.begin(now_s, numbers) for numbers in self._units]
        return max(self._rounds.end_s(gather) for gather in gathers)

    def _sharded(self, now_s: float) -> float:
        """Return the end of a step in which each layer's weights are gathered, *prefetch* layers ahead of their use."""
        count = len(self._used)
        uses, coming = [*range(count), *reversed(range(count))], list[list[int]]()

        def present(now_s: float) -> float:
            while uses and len(coming) <= self._prefetch:
                coming.append([self._rounds.begin(now_s, self._units[unit]) for unit in self._used[uses.pop(0)]])
            return max([now_s, *(self._rounds.end_s(gather) for gather in coming.pop(0))])

        for layer in range(count):
            now_s = present(now_s) + self._forward_s[layer]
        return self._updated(*self._summed(now_s, present))

    def _summed(self, now_s: float, present: Callable[[float], float] = float) -> tuple[float, float]:
        """Return when the backward pass and the sums end; from stage 2 on each sum waits for the one before."""
        kept: list[int] = []
        last_s = now_s
        for layer in reversed(range(len(self._used))):
            now_s = present(now_s) + self._backward_s[layer]
            if layer in self._ended:
                numbers = self._units[self._ended[layer]]
                if self._stage == 1:
                    kept.append(numbers)
                else:
                    now_s = max(now_s, last_s)
                    last_s = self._rounds.end_s(self._rounds.begin(now_s, numbers))
        sums = [self._rounds.begin(now_s, numbers) for numbers in kept]
        return now_s, max([last_s, *map(self._rounds.end_s, sums)])

    def _updated(self, now_s: float, summed_s: float) -> float:
        return max(now_s, summed_s) + self._apply_s


def tensor_parallel(group: RankGroup, settings: dict[str, Any]) -> StepTime:
    """Two sums of activations over the ranks per layer with weights that are cut: one forward, one backward."""
    shard = group.replica.tensor_shard()
    costs = shard.costs(group.batches(sum(group.sizes)))
    works: list[list[Cost]] = [[]]
    sums: list[int] = []

    def sum_over_ranks(cost: int) -> None:
        sums.append(cost // NUMBER_BYTES)
        works.append([])

    for piece, cost in zip(shard.pieces, costs, strict=False):
        works[-1] += [cost.whole.forward] if piece.whole is not None else []
        if piece.shard is not None:
            works[-1].append(cost.shard.forward)
            sum_over_ranks(cost.shard.output_bytes)
            works[-1].append(cost.join.forward)
    works[-1] += [costs[-1].whole.forward, costs[-1].whole.backward]
    for piece, cost in reversed(list(zip(shard.pieces, costs, strict=False))):
        if piece.shard is not None:
            works[-1].append(cost.shard.backward)
            sum_over_ranks(cost.shard.output_bytes)
        works[-1] += [cost.whole.backward] if piece.whole is not None else []
        works[-1] += [cost.join.backward] if piece.shard is not None else []
    works[-1].append(shard.part.apply_cost())
    works_s = [[sum(expected_s(device, cost) for cost in work) for device in group.devices] for work in works]
    now_s, ends_s = [0.0] * len(group.names), [0.0]
    for _ in (1, 2):
        for i, work_s in enumerate(works_s):
            now_s = [start + seconds for start, seconds in zip(now_s, work_s, strict=True)]
            now_s = all_reduced_s(group.hops, sums[i], now_s) if i < len(sums) else now_s
        ends_s.append(max(now_s))
    sent = 2 * (len(group.names) - 1) * NUMBER_BYTES * sum(sums)
    return StepTime(ends_s[2] - ends_s[1], max(map(sum, zip(*works_s, strict=True))), sent)


def pipeline(group: RankGroup, settings: dict[str, Any]) -> StepTime:
    """Micro-batches through the stages and back, then each rank's optimizer step; from flush to flush."""
    search = StageSearch(group.replica, settings, group.topology, group.names)
    order = range(len(group.names))
    plan = search.plan(order)
    applies_s = [
        expected_s(device, group.replica.part(plan.places(i)).apply_cost()) for i, device in enumerate(group.devices)
    ]
    m = settings["micro_batches"]
    works = [plan.cost(stage).total for stage in order]
    compute_s = max(m * expected_s(device, work) for device, work in zip(group.devices, works, strict=True))
    sent = sum(2 * m * plan.cost(stage).output_bytes for stage in order if stage < plan.last)
    tied_s, holders = 0.0, plan.holders()
    for place, found in holders.items():
        tied_s += search.tied_s(place, found)
        sent += len(found) * (len(found) - 1) * group.replica.shapes[place].nbytes
    # The first stage is the last one to go backward, and the next step waits for it.
    return StepTime(search.flush_s(plan, order) + tied_s + applies_s[0], compute_s + max(applies_s), float(sent))


TIMES: dict[str, Callable[[RankGroup, dict[str, Any]], StepTime]] = {
    "all_reduce_dp": all_reduce_dp,
    "zero": zero,
    "pipeline": pipeline,
    "tensor_parallel": tensor_parallel,
    "local_sgd": local_sgd,
    "diloco": diloco,
}
"""Algorithm -> its step."""
