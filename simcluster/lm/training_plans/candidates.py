"""The candidates of a plan: algorithms with their settings, on all nodes, the fastest ones, or those of one site."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from simcluster.algorithms import ALGORITHMS
from simcluster.lm.training_plans.tall import GptBlocks
from simcluster.lm.training_plans.times import RankGroup, device_of
from simcluster.topology import Topology
from simcluster.topology.model.duration import expected_s
from simcluster.workloads.shares import by_rate

MOST_SETS: Final = 8
"""Limit on the sets of nodes that are tried, of each kind."""

ALIKE: Final = 1.01
"""Nodes within this factor of each other's speed are taken or left together."""

LOCAL: Final = ("local_sgd", "diloco")
"""The algorithms that do not exchange in every step, and so learn another thing from the same samples."""


@dataclass(frozen=True)
class Candidate:
    """An *algorithm* with *settings* on the nodes *names*, with *sizes* samples per step on each."""

    algorithm: str
    settings: Mapping[str, Any] = field(hash=False)
    names: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def label(self) -> str:
        """The name in the ranking: of ZeRO with its stage."""
        if len(self.names) == 1:
            return "alone"
        return f"zero {self.settings['stage']}" if self.algorithm == "zero" else self.algorithm

    @property
    def splits_samples(self) -> bool:
        """Whether each node works on its samples; otherwise all work on those of all."""
        return len(self.names) > 1 and self.algorithm not in ("pipeline", "tensor_parallel")

    @property
    def told(self) -> dict[str, Any]:
        """The settings that the plan chose, and those that a reader needs."""
        chosen = {name: self.settings[name] for name in ("interval", "micro_batches") if name in self.settings}
        if self.splits_samples and self.settings.get("schedule", "ring") != "ring":
            chosen["schedule"] = self.settings["schedule"]
        return chosen


def node_sets(topology: Topology, blocks: GptBlocks) -> list[tuple[str, ...]]:
    """Return the sets of nodes to try, in the topology's order: all, the fastest down to one, those of each site."""
    names = topology.workers
    replica = blocks.replica([2])
    cost = replica.gradient_cost(next(replica.batches()))
    seconds = {name: expected_s(device_of(topology, name), cost) for name in names}
    speeds: list[float] = []
    for one in sorted(seconds.values()):
        if not speeds or one > ALIKE * speeds[-1]:
            speeds.append(one)
    found = [tuple(name for name in names if seconds[name] <= ALIKE * limit) for limit in reversed(speeds)]
    sites = dict.fromkeys(topology.nodes[name].site for name in names)
    found += [tuple(name for name in names if topology.nodes[name].site == site) for site in sites if site is not None]
    found = [found[0], *found[1:][: 2 * MOST_SETS], *((name,) for name in sorted(names, key=seconds.__getitem__)[:1])]
    return list(dict.fromkeys(found))


def candidates(topology: Topology, blocks: GptBlocks, samples: int, heads: int) -> Iterator[Candidate]:
    """Yield every candidate for *samples* per step on all nodes of a set together; the model has *heads* KV heads."""
    sets = node_sets(topology, blocks)
    divisors = [n for n in range(2, min(heads, samples, len(sets[0])) + 1) if heads % n == 0]
    for names in dict.fromkeys(names[:n] for names in reversed(sets) for n in divisors if n <= len(names)):
        sizes = tuple(by_rate(samples, [1.0] * len(names)))
        yield Candidate("tensor_parallel", defaults("tensor_parallel"), names, sizes)
    for names in sets:
        n = len(names)
        if samples < n:
            continue
        equal = tuple(by_rate(samples, [1.0] * n))
        if n == 1:
            yield Candidate("all_reduce_dp", defaults("all_reduce_dp"), names, equal)
            continue
        group = RankGroup(topology, names, blocks, equal)
        shared = tuple(by_rate(samples, group.rates))
        for sizes in dict.fromkeys((equal, shared)):
            for name in ("all_reduce_dp", *LOCAL):
                for schedule in ("ring", "direct"):
                    yield Candidate(name, defaults(name) | {"schedule": schedule}, names, sizes)
            for stage in (1, 2, 3):
                yield Candidate("zero", defaults("zero") | {"stage": stage}, names, sizes)
        yield from _pipelines(group, equal)


def _pipelines(group: RankGroup, sizes: tuple[int, ...]) -> Iterator[Candidate]:
    """Yield pipelines cut by the nodes' speed or memory, with as many micro-batches as stages or a multiple of them."""
    n, samples = len(sizes), sum(sizes)
    numbers = [m for m in (n, 2 * n, 4 * n) if samples % m == 0]
    memory = tuple(float(device.usable_bytes or 0) for device in group.devices)
    for rates in dict.fromkeys((group.rates, memory if min(memory) else group.rates)):
        given = defaults("pipeline") | {"flops_per_s": rates}
        for m in numbers or [max(m for m in range(1, samples + 1) if samples % m == 0 and m <= 4 * n)]:
            yield Candidate("pipeline", given | {"micro_batches": m}, group.names, sizes)


def defaults(algorithm: str) -> dict[str, Any]:
    """Return the settings of *algorithm* with their defaults."""
    parameters = inspect.signature(ALGORITHMS[algorithm]).parameters.values()
    return {one.name: one.default for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY}
