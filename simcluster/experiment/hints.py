"""After a run, suggest settings that would have made it far faster, judging by its own numbers."""

from __future__ import annotations

from collections.abc import Iterator

from simcluster.algorithms.facts import facts_of
from simcluster.algorithms.model_parallel.placement import StageSearch
from simcluster.experiment.read.batches import by_device
from simcluster.experiment.read.experiment import Experiment
from simcluster.experiment.read.fit import a_replica
from simcluster.runs import words
from simcluster.runs.calls import SCRIPT
from simcluster.runs.record import RunRecord
from simcluster.runs.steps import steps_of
from simcluster.topology.replicas import rounds_of

FAR = 1.5
"""A hint is shown only if a step would be at least this many times faster."""

MOST_WORKERS = 32
"""With more workers no hints are computed: that would take too long."""


def hints_of(plan: Experiment, record: RunRecord) -> list[str]:
    """Return a line for each setting with which the simulated run of *plan* would be at least FAR
    times as fast.

    *record* is the record of the run. No other run is simulated for the hints. For a script, the
    line says why its time has no interval.
    """
    size = len(plan.topology.workers)
    if plan.backend != "sim" or record.error is not None or not 1 < size <= MOST_WORKERS:
        return []
    if plan.algorithm_name == SCRIPT:
        rounds = rounds_of(plan.topology)
        return [f"no interval around the time: it would take {rounds} more runs of the script"] if rounds else []
    facts = facts_of(plan.algorithm)
    if facts.places is not None:
        return list(_of_order(plan))
    return [] if facts.evenly(plan.algorithm_settings) else list(_of_batches(plan, record))


def _of_order(plan: Experiment) -> Iterator[str]:
    """Yield a hint if stages in another order of nodes would be faster, perhaps with fewer nodes.

    There is no hint if the user has chosen the order.
    """
    settings = plan.algorithm_settings
    size = len(plan.topology.workers)
    replica = a_replica(plan.workload, size, plan.steps, "none") if settings["order"] is None else None
    if replica is None:
        return
    given = {key: plan.by_topology.get(f"algorithm.{key}", value) for key, value in settings.items()}
    search = StageSearch(replica, given, plan.topology)
    now_s = search.step_s(range(size))
    then_s = search.step_s(search.fastest(whole=plan.checkpoint is not None))
    if then_s * FAR <= now_s:
        yield _line("order: auto", then_s, now_s, "--set algorithm.order=auto")


def _of_batches(plan: Experiment, record: RunRecord) -> Iterator[str]:
    """Yield a hint if batch sizes by speed would be faster than equal ones.

    Nothing is computed unless the work of the slowest node takes most of a step.
    """
    names = plan.topology.workers
    sizes = plan.workload.sizes(len(plan.topology.workers))
    steps, _ = steps_of(record)
    if not steps or not isinstance(plan.document["workload"].get("batch_size"), int):
        return
    step_s = record.elapsed_s / steps
    works_s = [node.compute_s / steps for node in record.nodes]
    slowest_s = max(works_s)
    if not step_s / FAR <= slowest_s <= step_s or slowest_s * len(works_s) < FAR * sum(works_s):
        return
    total = sum(sizes)
    if plan.numerics != "none" and not plan.workload.is_small(total):
        return  # counting costs would take longer than many runs, and import torch's compiler
    replica = a_replica(plan.workload, len(names), plan.steps, "none")
    if replica is None:
        return
    shares = by_device(replica, total, plan.topology)
    then_s = step_s - slowest_s + max(
        work_s * share / size for work_s, share, size in zip(works_s, shares, sizes, strict=True)
    )  # fmt: skip
    if then_s * FAR <= step_s:
        setting = f"{{total: {total}, by: device}}"
        yield _line(f"batch_size: {setting}", then_s, step_s, f"--set 'workload.batch_size={setting}'")


def _line(setting: str, then_s: float, now_s: float, how: str) -> str:
    times = f"{words.seconds(then_s)} in place of {words.seconds(now_s)}"
    return f"with {setting} a step would take {times}, {now_s / then_s:.3g} times faster: {how}"
