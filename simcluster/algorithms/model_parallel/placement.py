"""The fastest order of a pipeline's ranks: an estimate of a step's time in a given order, and a
search for the order with the shortest step.

The estimate uses the plan's cuts, each device's expected time for its tasks, and links that stages
share. An order is impossible if weights, gradients and
gathered copies exceed a device's memory; activations and the optimizer's state do not count.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import permutations
from typing import Any

from simcluster.algorithms.model_parallel.flush_replay import StageHops, replay_flush
from simcluster.algorithms.model_parallel.pipeline_plan import ORDERS, PipelinePlan, plan_by
from simcluster.errors import UsageError
from simcluster.topology import Topology
from simcluster.topology.model.duration import expected_s
from simcluster.topology.model.orders import moves
from simcluster.transport import Cost
from simcluster.workloads import Replica

EXACT = 6
"""The largest number of ranks for which every order is tried."""

MOST_TASKS = 200_000
"""The number of tasks after which a search among more than EXACT ranks stops. Estimating that many
takes some seconds.
"""


def placed(replica: Replica, settings: Mapping[str, Any], cluster: Topology, whole: bool) -> tuple[int, ...]:
    """Return the order of ranks with the shortest estimated step among those tried; ties go to the
    first one tried.

    If *whole*, use all ranks.

    Raise UsageError if no order is possible.
    """
    size = len(cluster.workers)
    search = StageSearch(replica, settings, cluster)
    if size <= EXACT:
        lengths = [size] if whole else range(size, 0, -1)
        orders: Iterator[tuple[int, ...]] = (order for k in lengths for order in permutations(range(size), k))
        best = min(orders, key=search.step_s)
    else:
        best = search.improved(whole)
    search.plan(best)  # raises UsageError if even the best order is impossible
    return best


def numbers_of(settings: Mapping[str, Any], cluster: Topology, ranks: Sequence[int]) -> dict[str, tuple[float, ...]]:
    """Return setting -> *cluster*'s numbers for *ranks* in order, for each setting that is
    `topology`.
    """
    names = [cluster.workers[rank] for rank in ranks]
    found: dict[str, tuple[float, ...]] = {}
    if settings.get("flops_per_s") == "topology":
        found["flops_per_s"] = tuple(float(cluster.device(name).flops_per_s) for name in names)
    if settings.get("bandwidth_Bps") == "topology":
        # The last route leads back to the first rank: interleaved stages wrap around. A single rank
        # sends nothing, so any bandwidth does.
        routes = list(zip(names, [*names[1:], names[0]], strict=True))
        rates = (cluster.route_bandwidth_Bps(*route, math.inf) for route in routes)
        found["bandwidth_Bps"] = tuple(rates) if len(names) > 1 else (1.0,)
    return found


class StageSearch:
    """A search for the order with the shortest step of *replica*'s pipeline under *settings* on
    *cluster*.

    Rank i runs on the i-th of *names*, by default the cluster's workers.
    """

    def __init__(
        self, replica: Replica, settings: Mapping[str, Any], cluster: Topology, names: Sequence[str] | None = None
    ) -> None:
        self._replica = replica
        self._settings = settings
        self._cluster = cluster
        self._names = cluster.workers if names is None else list(names)
        self._size = len(self._names)
        self._micro = settings["micro_batches"] or self._size
        self._bytes = [weights.nbytes for weights in replica.parameters]
        self._gathers = 1 / (settings["gather_interval"] or replica.steps)
        self._work_s = cache(self._expected_s)
        self._route = cache(self._numbers)
        self._hops = StageHops(cluster, self._names)
        self._played = 0

    def plan(self, ranks: Sequence[int]) -> PipelinePlan:
        """Return the plan for *ranks* in order. Raise UsageError if it is impossible."""
        settings = {**self._settings, **numbers_of(self._settings, self._cluster, ranks)}
        return plan_by(settings, self._replica, self._size, len(ranks))

    def step_s(self, ranks: Sequence[int]) -> float:
        """Return the estimated seconds of a step with *ranks* in order; infinity if the order is
        impossible.
        """
        try:
            plan = self.plan(ranks)
        except UsageError:
            return math.inf
        holders = plan.holders()
        tied_s = sum(self.tied_s(place, [ranks[i] for i in found]) for place, found in holders.items())
        apply_s, gather_s = [0.0], 0.0
        for i, rank in enumerate(ranks):
            held = sum(self._bytes[place] for place, found in holders.items() if i in found)
            if not self._fits(rank, held, len(ranks)):
                return math.inf
            apply_s.append(self._work_s(rank, _share(self._replica.apply_cost(), held / sum(self._bytes))))
            gather_s += self._sending_s(rank, 0, held)
        flush_s = max(self.flush_ends(plan, ranks).values())
        return flush_s + tied_s + max(apply_s) + gather_s * self._gathers

    def _fits(self, rank: int, held: int, p: int) -> bool:
        """Return whether *held* bytes of weights, their gradients and the copies of a gather fit
        into the memory of *rank*'s device.
        """
        device = self._cluster.nodes[self._names[rank]].device
        gathered = held if rank else sum(self._bytes) * (p > 1)
        return device is None or device.usable_bytes is None or 2 * held + gathered <= device.usable_bytes

    def _by_speed(self) -> list[int]:
        devices = [self._cluster.nodes[name].device for name in self._names]
        return sorted(range(self._size), key=lambda rank: -devices[rank].flops_per_s)  # type: ignore[union-attr]

    def fastest(self, whole: bool) -> tuple[int, ...]:
        """Return the best of these orders: the fastest rank alone, the two fastest ranks in the
        topology's order, the three fastest, and so on.
        """
        by_speed = self._by_speed()
        stages_each = (self._settings["chunks"] or 2) if self._settings["schedule"] == "interleaved" else 1
        most = min(self._size, len(self._replica.layers()) // stages_each)
        lengths = [self._size] if whole else range(most, 0, -1)
        return min((tuple(sorted(by_speed[:k])) for k in lengths), key=self.step_s, default=tuple(range(self._size)))

    def improved(self, whole: bool) -> tuple[int, ...]:
        """Start from the order of `fastest`, improve it by swaps, replacements, removals and
        insertions, and return the best order found.
        """
        by_speed, best = self._by_speed(), self.fastest(whole)
        least_s, again = self.step_s(best), True
        while again:
            again = False
            for order in moves(best, by_speed, fixed=whole):
                if self._played > MOST_TASKS:
                    return best
                taken_s = self.step_s(order)
                if taken_s < least_s:
                    best = order
                    least_s = taken_s
                    again = True
                    break
        return best

    def flush_ends(self, plan: PipelinePlan, ranks: Sequence[int], starts_s: Sequence[float] = ()) -> dict[int, float]:
        """Return when each rank has finished its tasks of one step, from *starts_s*, by default 0.

        A task starts when its rank is free and has its input.
        """
        orders = [ORDERS[self._settings["schedule"]](plan.p, i, self._micro, plan.chunks) for i in range(plan.p)]
        self._played += sum(map(len, orders))
        costs = [plan.cost(s) for s in range(len(plan.bounds))]
        free_s = dict(zip(ranks, starts_s or [0.0] * plan.p, strict=True))

        def run(s: int, way: str, came: Mapping[int, float]) -> Mapping[int, float]:
            rank, cost = ranks[s % plan.p], costs[s].forward if way == "forward" else costs[s].backward
            free_s[rank] = max(free_s[rank], came.get(rank, 0.0)) + self._work_s(rank, cost)
            return {rank: free_s[rank]}

        replay_flush(orders, plan.chunks, self._hops, lambda i: [ranks[i]], run, lambda s: costs[s - 1].output_bytes)
        return free_s

    def tied_s(self, place: int, holders: Sequence[int]) -> float:
        """Return how many seconds all *holders* of a parameter take to exchange its gradients."""
        pairs = ((a, b) for a in holders for b in holders if a != b)
        return max((self._sending_s(a, b, self._bytes[place]) for a, b in pairs), default=0.0)

    def tied_ends(self, size: int, starts_s: Mapping[int, float]) -> dict[int, float]:
        """Return when each of the ranks that begin at *starts_s* has sent *size* bytes to the others and got theirs."""
        ends_s = dict(starts_s)
        for a, start_s in starts_s.items():
            for b in starts_s.keys() - {a}:
                bandwidth_Bps, latency_s = self._route(a, b, size)
                left_s = start_s + size / bandwidth_Bps
                ends_s[a], ends_s[b] = max(ends_s[a], left_s), max(ends_s[b], left_s + latency_s)
        return ends_s

    def _sending_s(self, a: int, b: int, size: float) -> float:
        if a == b:
            return 0.0
        bandwidth_Bps, latency_s = self._route(a, b, size)
        return latency_s + size / bandwidth_Bps

    def _numbers(self, a: int, b: int, size: float) -> tuple[float, float]:
        message = self._names[a], self._names[b], size
        return self._cluster.route_bandwidth_Bps(*message), self._cluster.route_latency_s(*message)

    def _expected_s(self, rank: int, cost: Cost) -> float:
        return expected_s(self._cluster.device(self._names[rank]), cost)


def _share(cost: Cost, share: float) -> Cost:
    operators = round(cost.operators * share)
    return replace(cost, flops=cost.flops * share, memory_bytes=cost.memory_bytes * share, operators=operators)
