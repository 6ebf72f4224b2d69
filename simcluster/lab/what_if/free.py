"""Propose changes that cost nothing: shares by device speed, another pipeline order, fewer nodes.

Each change keeps the samples of a step: it may save time, but never by learning less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from simcluster.algorithms.facts import facts_of
from simcluster.experiment.read.experiment import Experiment
from simcluster.lab.what_if.perturb import MOST_PARTS, Change
from simcluster.workloads.shares import by_rate

FREE = ("share", "order", "without")
"""The kinds of free changes."""


def free_changes(plan: Experiment) -> list[Change]:
    """Return all free changes that apply to *plan*."""
    facts = facts_of(plan.algorithm)
    names = plan.topology.workers
    if facts.places is not None:
        return list(_of_order(plan))
    weighs = not facts.evenly(plan.algorithm_settings)
    total = sum(plan.workload.sizes(len(names))) if "batch_size" in plan.document["workload"] else 0
    found = _by_speed(plan, total) if weighs and total else ()
    return [*found, *(_without(plan, total, weighs=weighs) if total and len(names) > 1 else ())]


def _by_speed(plan: Experiment, total: int) -> Iterator[Change]:
    if len({plan.topology.device(name) for name in plan.topology.workers}) > 1:
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


def _without(plan: Experiment, total: int, *, weighs: bool) -> Iterator[Change]:
    """Yield changes that leave out a node; *weighs* says whether batches may be unequal."""
    names = plan.topology.workers
    if not (weighs or total % (len(names) - 1) == 0):
        return  # The samples cannot be divided evenly among the other nodes.
    for name in _some(plan, names[1:]):
        rest = [other for other in names if other != name]
        sizes = dict(zip(rest, by_rate(total, [1.0] * len(rest)), strict=True))
        overrides = {f"topology.nodes.{name}": {"kind": "host"}, "workload.batch_size": sizes}
        yield Change("without", name, f"without {name} (its samples on the others)", overrides)


def _some(plan: Experiment, names: Sequence[str]) -> list[str]:
    """Return *names*; if there are more than MOST_PARTS, return only those of the slowest nodes."""
    if len(names) <= MOST_PARTS:
        return list(names)
    return sorted(names, key=lambda name: plan.topology.device(name).flops_per_s)[:MOST_PARTS]
