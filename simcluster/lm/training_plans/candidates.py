"""The candidates of a plan: algorithms with settings, on sets of nodes.

The sets are all nodes, the fastest nodes, and the nodes of a site.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final

from simcluster.algorithms import ALGORITHMS
from simcluster.documents.settings import settings_of
from simcluster.lm.training_plans.extrapolated_gpt import GptBlocks
from simcluster.lm.training_plans.rank_group import RankGroup
from simcluster.topology import Topology
from simcluster.topology.model.duration import expected_s
from simcluster.workloads.shares import by_rate

MOST_SETS: Final = 8
"""Twice this number limits the sets of nodes to try, besides all nodes and the fastest one."""

ALIKE: Final = 1.01
"""If the speeds of two nodes differ by less than this factor, a set has both or neither."""

LOCAL: Final = ("local_sgd", "diloco")
"""Algorithms that do not exchange in every step, so that the same samples give other weights."""


@dataclass(frozen=True)
class Candidate:
    """An *algorithm* with *settings* on the nodes *names*, which have *sizes* samples per step."""

    algorithm: str
    settings: Mapping[str, Any] = field(hash=False)
    names: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def label(self) -> str:
        """The name in the ranking; for ZeRO, it includes the stage."""
        if len(self.names) == 1:
            return "alone"
        return f"zero {self.settings['stage']}" if self.algorithm == "zero" else self.algorithm

    @property
    def splits_samples(self) -> bool:
        """Whether each node works on its own samples; if not, every node works on all samples."""
        return len(self.names) > 1 and self.algorithm not in ("pipeline", "tensor_parallel")

    @property
    def told(self) -> dict[str, Any]:
        """The settings to show: those that the plan has chosen, and any schedule except "ring"."""
        names = ("interval", "micro_batches", "layout", "merge")
        chosen = {name: self.settings[name] for name in names if self.settings.get(name)}
        if self.splits_samples and self.settings.get("schedule", "ring") != "ring":
            chosen["schedule"] = self.settings["schedule"]
        return chosen


def node_sets(topology: Topology, blocks: GptBlocks) -> list[tuple[str, ...]]:
    """Return the sets of nodes to try: all, the fastest, and those of each site.

    The sets of the fastest nodes shrink down to a single node. The nodes in a set are in the
    topology's order.
    """
    names = topology.workers
    replica = blocks.replica([2])
    cost = replica.gradient_cost(next(replica.batches()))
    seconds = {name: expected_s(topology.device(name), cost) for name in names}
    speeds: list[float] = []
    for one in sorted(seconds.values()):
        if not speeds or one > ALIKE * speeds[-1]:
            speeds.append(one)
    found = [tuple(name for name in names if seconds[name] <= ALIKE * limit) for limit in reversed(speeds)]
    sites = dict.fromkeys(topology.nodes[name].site for name in names)
    found += [tuple(name for name in names if topology.nodes[name].site == site) for site in sites if site is not None]
    found = [found[0], *found[1:][: 2 * MOST_SETS], *((name,) for name in sorted(names, key=seconds.__getitem__)[:1])]
    return list(dict.fromkeys(found))


def candidates(
    topology: Topology, blocks: GptBlocks, samples: int, heads: int, experts: int = 0, load: str | None = None
) -> Iterator[Candidate]:
    """Yield every candidate for *samples* per step, on all nodes of a set together.

    If the model has *experts*, each layout divides them, with *load* on each. Tensor parallelism uses
    the first n nodes of a set, for each divisor n of the *heads* KV heads.
    """
    sets, given = node_sets(topology, blocks), defaults("expert_parallel") | {"load": load}
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
            for layout in _layouts(n, experts, heads) if experts else ():
                alone = n // (layout.get("pipeline", 1) * layout.get("tensor", 1))  # replicas of the model
                even = sizes == equal and samples % alone == 0
                if alone < n and not even:
                    continue
                merges = (False, True) if load in (None, "uniform") and layout["expert"] > 1 else (False,)
                numbers = _micro_batches(samples // alone, layout.get("pipeline", 1)) if even else [1]
                for merge, m in product(merges, numbers):
                    how = given | {"layout": layout, "merge": merge, "micro_batches": m if alone < n or m > 1 else None}
                    yield Candidate("expert_parallel", how, names, sizes)
            for stage in (1, 2, 3):
                yield Candidate("zero", defaults("zero") | {"stage": stage}, names, sizes)
        yield from _pipelines(group, equal)


def _layouts(n: int, experts: int, heads: int) -> Iterator[dict[str, int]]:
    """Yield the layouts of *n* ranks that divide *experts*, layers or heads; data groups take the other ranks."""
    for expert, pipeline, tensor in product([k for k in range(1, n + 1) if n % k == 0], repeat=3):
        inner = expert * pipeline * tensor
        if inner > 1 and n % inner == 0 == experts % expert == heads % tensor:
            others = {name: n for name, n in (("pipeline", pipeline), ("tensor", tensor)) if n > 1}
            yield {"data": n // inner, **others, "expert": expert}


def _micro_batches(samples: int, stages: int) -> list[int]:
    """Return the numbers of micro-batches to try for a replica's *samples*: all or one of them at once on a single
    stage; on several, at most 4 per stage.
    """
    if stages == 1:
        return sorted({1, samples})
    return [max(m for m in range(1, samples + 1) if samples % m == 0 and m <= 4 * stages)]


def _pipelines(group: RankGroup, sizes: tuple[int, ...]) -> Iterator[Candidate]:
    """Yield pipelines split by the nodes' speed or memory, with 1, 2 or 4 micro-batches per stage.

    If none of these numbers divides the samples, use the largest divisor of the samples that is at
    most 4 per stage.
    """
    n, samples = len(sizes), sum(sizes)
    numbers = [m for m in (n, 2 * n, 4 * n) if samples % m == 0]
    memory = tuple(float(device.usable_bytes or 0) for device in group.devices)
    for rates in dict.fromkeys((group.rates, memory if min(memory) else group.rates)):
        given = defaults("pipeline") | {"flops_per_s": rates}
        for m in numbers or [max(m for m in range(1, samples + 1) if samples % m == 0 and m <= 4 * n)]:
            yield Candidate("pipeline", given | {"micro_batches": m}, group.names, sizes)


def defaults(algorithm: str) -> dict[str, Any]:
    """Return the default settings of *algorithm*."""
    return {one.name: one.default for one in settings_of(ALGORITHMS[algorithm])}
