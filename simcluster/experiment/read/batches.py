"""Read batch sizes by node: a mapping by name, or a total to divide by the devices' speed.

batch_size: {mini1: 64, pi4: 4}
batch_size: {total: 160, by: device}     # resolved to a mapping by name when the experiment is read
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simcluster.algorithms import ALGORITHMS
from simcluster.algorithms.facts import facts_of
from simcluster.documents.limits import MOST_STEPS
from simcluster.documents.reading import DocumentReading
from simcluster.fault_plans.kinds import Fault, may_lose
from simcluster.spelling import nearest
from simcluster.topology import Topology
from simcluster.topology.model.duration import expected_s
from simcluster.transport import Cost
from simcluster.workloads import Replica, Workload
from simcluster.workloads.shares import by_rate

PATH = ("workload", "batch_size")
BY_DEVICE = ("total", "by")


def is_by_device(given: Mapping[str, Any], names: Sequence[str]) -> bool:
    """Return whether *given* has a total to divide by device, rather than a size for each node."""
    return "by" in given and "by" not in names


def total_of(reading: DocumentReading, given: Mapping[str, Any], names: Sequence[str]) -> int | None:
    """Return the total of all batch sizes in *given*.

    If it is invalid, report that and return None.
    """
    before = len(reading.problems)
    for key in given:
        if key not in BY_DEVICE:
            reading.bad((*PATH, key), nearest(str(key), BY_DEVICE), "unknown key", at_key=True)
    if given["by"] != "device":
        reading.bad((*PATH, "by"), "device, or a mapping by node")
    total = given.get("total")
    if not _is_number(total, len(names)):
        expected = f"a whole number of at least {len(names)}, one sample for each node, and at most {MOST_STEPS}"
        reading.bad((*PATH, "total") if "total" in given else PATH, expected, None if "total" in given else "no total")
    return total if len(reading.problems) == before else None


def sizes_of(reading: DocumentReading, given: Mapping[str, Any], names: Sequence[str]) -> list[int] | None:
    """Return the batch sizes of *names* in *given*. If any is invalid, report that and return None."""
    before = len(reading.problems)
    for key, value in given.items():
        if key not in names:
            reading.bad((*PATH, key), nearest(str(key), names), "unknown node", at_key=True)
        elif not _is_number(value, 1):
            reading.bad((*PATH, key), f"a whole number of at least 1 sample and at most {MOST_STEPS}")
    missing = [name for name in names if name not in given]
    if missing:
        reading.bad(PATH, "a size for every node, or {total: N, by: device}", f"none for {', '.join(missing)}")
    return [given[name] for name in names] if len(reading.problems) == before else None


def by_device(replica: Replica, total: int, cluster: Topology) -> list[int]:
    """Divide *total* samples among the workers by the speed of their devices; return batch sizes.

    The speed is that of computing a gradient of *replica*.
    """
    times_s = times_of(replica.gradient_cost(next(replica.batches())), cluster)
    return by_rate(total, [1 / time_s for time_s in times_s] if all(times_s) else [1.0] * len(times_s))


def times_of(cost: Cost, cluster: Topology) -> list[float]:
    """Return the seconds in which each worker's device does work of *cost*."""
    devices = [device for name in cluster.workers if (device := cluster.nodes[name].device) is not None]
    return [expected_s(device, cost) for device in devices]


def check_weighed(reading: DocumentReading, algorithm: object, settings: Mapping[str, Any], workload: Workload) -> None:
    """Report unequal batch sizes if *algorithm* averages results without weighting them by size."""
    why = facts_of(algorithm).evenly(settings)
    if why and len(set(workload.batch_sizes)) > 1:
        found = f"{min(workload.batch_sizes)} to {max(workload.batch_sizes)} samples per node"
        reading.bad(PATH, f"one number for all nodes, since {why}", found)


def check_regroups(reading: DocumentReading, algorithm: object, workload: Workload, faults: Sequence[Fault]) -> None:
    """Report unequal batch sizes if *faults* may remove a node and the algorithm then regroups.

    The surviving nodes need one size.
    """
    if facts_of(algorithm).in_step and len(set(workload.batch_sizes)) > 1 and any(map(may_lose, faults)):
        each = f"{min(workload.batch_sizes)} to {max(workload.batch_sizes)} samples per node"
        expected = (
            "one size for all nodes, which the rest can form a group with; or regroup: false, and a loss ends the run"
        )
        reading.bad(PATH, expected, f"{each}, and faults that may lose a node")


def joined(
    reading: DocumentReading, algorithm: object, settings: Mapping[str, Any], workload: Workload, size: int
) -> Workload:
    """Return *workload* with the number of batches that a step joins, if its rate depends on that.

    Report a rate by the joined batch if *algorithm* has no step that takes it.
    """
    if workload.recipe.scale == "none":
        return workload
    ranks = size if settings.get("server_trains", True) else size - 1
    joins = facts_of(algorithm).joins
    given = {key: value for key, value in settings.items() if (key, value) != ("k", ranks)}  # all of them, as without k
    if not joins(given):
        sure = [name for name, known in ALGORITHMS.items() if facts_of(known).joins({})]
        waits = [key for key, value in given.items() if joins({}) and not joins({key: value})]
        instead = f"no {', '.join(waits)}" if waits else f"one of {', '.join(sure)}"
        expected = f"none, since not every step takes the joined batch; or {instead}"
        reading.bad(("workload", "scale"), expected, workload.recipe.scale)
    return workload.joining(ranks)


def _is_number(value: object, least: int) -> bool:
    return type(value) is int and least <= value <= MOST_STEPS
