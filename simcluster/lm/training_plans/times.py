"""The time of a training step of each algorithm, and the bytes that all ranks send in a step.

The algorithms state the costs of a rank's work, and the roofline of the rank's device gives the
time of that work. Steps are timed in the steady state, from the end of one step to the end of the
next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import torch

from simcluster.algorithms.data_parallel.layer_units import cut_into_units, units_of_layers
from simcluster.algorithms.local_steps.rounds import adopt, changed, nesterov, outer_gradient
from simcluster.algorithms.model_parallel.placement import StageSearch
from simcluster.algorithms.timed import cost_of
from simcluster.collectives.flat import lengths_of
from simcluster.lm.plan.times import all_reduce_s
from simcluster.lm.training_plans.experts import ExpertTimes
from simcluster.lm.training_plans.merged_experts import MergedTimes
from simcluster.lm.training_plans.rank_group import RankGroup, StepTime
from simcluster.lm.training_plans.ring import NUMBER_BYTES, RingRounds, all_reduced_s, period_s
from simcluster.topology.model.duration import expected_s
from simcluster.transport import Cost


def all_reduce_dp(group: RankGroup, settings: dict[str, Any]) -> StepTime:
    """Time a step of data parallelism: a gradient, its all-reduce, and an optimizer step."""
    step_s = _summed(group, group.works_s, settings["schedule"])
    return StepTime(step_s, max(group.works_s), group.summed_bytes(group.numbers))


def _summed(group: RankGroup, works_s: Sequence[float], schedule: str) -> float:
    """Return the seconds of a step: *works_s* of work by rank, then an all-reduce."""
    if len(works_s) == 1:
        return works_s[0]
    if schedule == "ring":
        return period_s(group.hops(group.numbers), group.numbers, works_s)
    return max(works_s) + all_reduce_s(group.topology, group.names, NUMBER_BYTES * group.numbers)


def local_sgd(group: RankGroup, settings: dict[str, Any]) -> StepTime:
    """Time local SGD: *interval* local steps of each rank, then the mean of the weights.

    The result is per local step.
    """
    vector = torch.empty(group.numbers, device="meta")
    weights = group.replica.parameters
    extras = [
        cost_of(changed, vector, weights, 1.0), cost_of(torch.add, vector, vector), cost_of(adopt, weights, vector),
    ]  # fmt: skip
    return _rounds(group, settings, extras)


def diloco(group: RankGroup, settings: dict[str, Any]) -> StepTime:
    """Time DiLoCo: *interval* local steps of each rank, then an outer step along the mean movement.

    The result is per local step.
    """
    vector = torch.empty(group.numbers, device="meta")
    weights = group.replica.parameters
    rates = settings["outer_learning_rate"], settings["outer_momentum"]
    extras = [
        cost_of(outer_gradient, vector, weights),
        cost_of(nesterov, vector, vector, vector, *rates),
        cost_of(adopt, weights, vector),
    ]
    return _rounds(group, settings, extras)


def _rounds(group: RankGroup, settings: dict[str, Any], extras: Sequence[Cost]) -> StepTime:
    """Return the mean time per local step in a round.

    A round has *interval* local steps, work of the costs *extras*, and an all-reduce.
    """
    interval = settings["interval"]
    extras_s = [sum(expected_s(device, cost) for cost in extras) for device in group.devices]
    works_s = [interval * work + extra for work, extra in zip(group.works_s, extras_s, strict=True)]
    round_s = _summed(group, works_s, settings["schedule"])
    return StepTime(round_s / interval, max(works_s) / interval, group.summed_bytes(group.numbers) / interval)


def zero(group: RankGroup, settings: dict[str, Any]) -> StepTime:
    """Time ZeRO: sum gradients at their owners, step the optimizer there, and gather the weights.

    The setting *stage* decides when each of these happens. Every layer takes the time of the
    slowest rank, and every hop that of the slowest hop.
    """
    return _ZeroTimes(group, settings["stage"], settings["prefetch"]).step()


class _ZeroTimes:
    """A replay of two ZeRO steps. The second one is timed, in the steady state."""

    def __init__(self, group: RankGroup, stage: int, prefetch: int) -> None:
        self._stage = stage
        self._prefetch = prefetch
        self._n = len(group.names)
        replica = group.replica
        units = cut_into_units(replica)
        self._units = [unit.size_bytes // NUMBER_BYTES for unit in units]
        self._used = [[unit.number for unit in used] for used in units_of_layers(replica, units)]
        self._ended = {unit.layer: unit.number for unit in units}
        of_size = {size: replica.layer_costs(group.batches(size)) for size in {*group.sizes}}
        costs = [of_size[size] for size in group.sizes]  # by rank, then by layer
        self._forward_s, self._backward_s = (
            [max(map(expected_s, group.devices, map(attrgetter(way), of))) for of in zip(*costs, strict=True)]
            for way in ("forward", "backward")
        )
        own = [torch.empty(lengths_of(numbers, self._n)[0], device="meta") for numbers in self._units]
        apply = replica.pieces(own).apply_cost()
        self._apply_s = max(expected_s(device, apply) for device in group.devices)
        self._rounds = RingRounds(group.hops, self._n)

    def step(self) -> StepTime:
        compute_s = sum(self._forward_s) + sum(self._backward_s) + self._apply_s
        gathered = sum(self._units[unit] for used in self._used for unit in used)
        sent = sum(self._units) + (2 * gathered if self._stage == 3 else sum(self._units))
        ends_s = [0.0, 0.0, 0.0]
        for i in (1, 2):
            ends_s[i] = self._sharded(ends_s[i - 1]) if self._stage == 3 else self._replicated(ends_s[i - 1])
        return StepTime(ends_s[2] - ends_s[1], compute_s, (self._n - 1) * NUMBER_BYTES * sent)

    def _replicated(self, now_s: float) -> float:
        """Return the end of a step from *now_s*, if ranks have all weights (stages 0 to 2)."""
        now_s += sum(self._forward_s)
        now_s = self._updated(*self._summed(now_s))
        gathers = [self._rounds.begin(now_s, numbers) for numbers in self._units]
        return max(self._rounds.end_s(gather) for gather in gathers)

    def _sharded(self, now_s: float) -> float:
        """Return the end of a step from *now_s*, with weights gathered by layer (stage 3).

        Gathers begin *prefetch* layers ahead of their use.
        """
        count = len(self._used)
        uses = [*range(count), *reversed(range(count))]
        coming = list[list[int]]()

        def present(now_s: float) -> float:
            # Begin the gathers that are due; return the time at which the next layer's weights have
            # arrived.
            while uses and len(coming) <= self._prefetch:
                coming.append([self._rounds.begin(now_s, self._units[unit]) for unit in self._used[uses.pop(0)]])
            return max([now_s, *(self._rounds.end_s(gather) for gather in coming.pop(0))])

        for layer in range(count):
            now_s = present(now_s) + self._forward_s[layer]
        return self._updated(*self._summed(now_s, present))

    def _summed(self, now_s: float, present: Callable[[float], float] = float) -> tuple[float, float]:
        """Return (end of backward, end of sums). From stage 2 on, sums run one at a time."""
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
    """Time tensor parallelism: ranks sum the activations of each half of a layer.

    They do so once in the forward pass and once in the backward pass.
    """
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
    # Ranks alternate between work alone (works) and sums together (sums). The second of two steps
    # is in the steady state.
    works_s = [[sum(expected_s(device, cost) for cost in work) for device in group.devices] for work in works]
    now_s = [0.0] * len(group.names)
    ends_s = [0.0]
    for _ in (1, 2):
        for i, work_s in enumerate(works_s):
            now_s = [start + seconds for start, seconds in zip(now_s, work_s, strict=True)]
            now_s = all_reduced_s(group.hops(sums[i]), sums[i], now_s) if i < len(sums) else now_s
        ends_s.append(max(now_s))
    compute_s = max(map(sum, zip(*works_s, strict=True)))
    return StepTime(ends_s[2] - ends_s[1], compute_s, group.summed_bytes(sum(sums)))


def pipeline(group: RankGroup, settings: dict[str, Any]) -> StepTime:
    """Time a pipeline: micro-batches forward and backward, then each rank's optimizer step."""
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
    tied = {place: found for place, found in plan.holders().items() if len(found) > 1}
    sizes = {place: group.replica.shapes[place].nbytes for place in tied}
    sent += sum(len(found) * (len(found) - 1) * sizes[place] for place, found in tied.items())
    now, ends_s = [0.0] * len(order), [0.0]
    for _ in (1, 2):
        now = list(search.flush_ends(plan, order, now).values())
        for place, found in tied.items():
            for stage, end_s in search.tied_ends(sizes[place], {stage: now[stage] for stage in found}).items():
                now[stage] = end_s
        now = [start_s + apply_s for start_s, apply_s in zip(now, applies_s, strict=True)]
        ends_s.append(max(now))
    return StepTime(ends_s[2] - ends_s[1], compute_s + max(applies_s), float(sent))


def expert_parallel(group: RankGroup, settings: dict[str, Any]) -> StepTime:
    """Time expert parallelism. Ranks wait for each other in every exchange, so the busiest decides."""
    times = (MergedTimes if settings["merge"] else ExpertTimes)(group, settings)
    step_s = times.step_s()
    return StepTime(step_s, max(times.clocks.compute_s), float(times.clocks.sent_bytes))


TIMES: dict[str, Callable[[RankGroup, dict[str, Any]], StepTime]] = {
    step.__name__: step for step in (all_reduce_dp, zero, pipeline, tensor_parallel, expert_parallel, local_sgd, diloco)
}
"""Algorithm -> the function that times its step."""
