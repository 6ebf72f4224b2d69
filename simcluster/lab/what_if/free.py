"""Changes that cost nothing: work shared by the devices' speed, another order of a pipeline, a node left out.

Each keeps the samples of a step, so that it gains time and not by learning less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from simcluster.algorithms.facts import facts_of
from simcluster.experiment.read.experiment import Experiment
from simcluster.lab.what_if.perturb import MOST_PARTS, Change
from simcluster.workloads.shares import by_rate

FREE: Final = ("share", "order", "without")
"""The kinds of these changes."""


def free_changes(plan: Experiment) -> list[Change]:
    """Return all that can be tried for *plan*."""
    facts, names = facts_of(plan.algorithm), plan.topology.workers
    if facts.places is not None:
        return list(_of_order(plan))
    weighs = not facts.evenly(plan.algorithm_settings)
    return [*(_by_speed(plan) if weighs else ()), *(_without(plan, weighs=weighs) if len(names) > 1 else ())]


def _by_speed(plan: Experiment) -> Iterator[Change]:
    names = plan.topology.workers
    total = sum(plan.workload.sizes(len(names)))
    if "batch_size" in plan.document["workload"] and len({plan.topology.nodes[name].device for name in names}) > 1:
        overrides = {"workload.batch_size": {"total": total, "by": "device"}}
        yield Change("share", "batch_size", f"share by speed ({total} samples per step)", overrides)


def _of_order(plan: Experiment) -> Iterator[Change]:
    names = plan.topology.workers
    settings = plan.algorithm_settings
    present = [names[rank] for rank in settings["order"]] if settings["order"] is not None else list(names)
    if len(names) > 1:
        given: dict[str, Any] = {"algorithm.order": "auto", "algorithm.flops_per_s": "topology"}
        if settings["bandwidth_Bps"] is not None:
            given["algorithm.bandwidth_Bps"] = "topology"
        yield Change("order", "order", "other order (auto, cut by speed)", given)
    for name in _some(plan, present) if len(present) > 1 else ():
        rest = [other for other in present if other != name]
        numbers = {f"algorithm.{key}": "topology" for key in ("flops_per_s", "bandwidth_Bps") if settings[key]}
        yield Change("without", name, f"without {name} (its stage on the others)", {"algorithm.order": rest, **numbers})


def _without(plan: Experiment, *, weighs: bool) -> Iterator[Change]:
    names = plan.topology.workers
    total = sum(plan.workload.sizes(len(names)))
    if "batch_size" not in plan.document["workload"] or not (weighs or total % (len(names) - 1) == 0):
        return  # the others could not take its samples
    for name in _some(plan, names[1:]):
        rest = [other for other in names if other != name]
        sizes = dict(zip(rest, by_rate(total, [1.0] * len(rest)), strict=True))
        overrides = {f"topology.nodes.{name}": {"kind": "host"}, "workload.batch_size": sizes}
        yield Change("without", name, f"without {name} (its samples on the others)", overrides)


def _some(plan: Experiment, names: Sequence[str]) -> list[str]:
    """Return *names*, or the slowest of them if they are many."""

    def flops_per_s(name: str) -> float:
        device = plan.topology.nodes[name].device
        return device.flops_per_s if device is not None else 0.0

    return sorted(names, key=flops_per_s)[:MOST_PARTS] if len(names) > MOST_PARTS else list(names)
