"""Checks for algorithms that partition the model: can this model be cut, and which of the topology's numbers replace
the word `topology`?
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from simcluster.documents.reading import Reading
from simcluster.errors import UsageError
from simcluster.topology import Topology
from simcluster.workloads import Workload
from simcluster.workloads.workload import Numerics

TOPOLOGY = "topology"


def _flops_per_s(cluster: Topology) -> list[float]:
    devices = [cluster.nodes[name].device for name in cluster.workers]
    return [float(device.flops_per_s) for device in devices if device is not None]


def _bandwidth_Bps(cluster: Topology) -> list[float]:
    names = cluster.workers
    # Include last to first: interleaved stages wrap around. A single rank sends nothing, at any speed.
    rates = [cluster.route_bandwidth_Bps(a, b) for a, b in zip(names, [*names[1:], names[0]], strict=True)]
    return rates if len(names) > 1 else [1.0]


NUMBERS: Final[Mapping[str, Callable[[Topology], list[float]]]] = {
    "flops_per_s": _flops_per_s,
    "bandwidth_Bps": _bandwidth_Bps,
}
"""Settings that may be `topology`, with their numbers: per rank in order, and per route from each rank to the next."""


def put_numbers(block: dict[str, Any], settings: dict[str, Any], cluster: Topology | None) -> None:
    """Replace `topology` in an algorithm's *block* and *settings* by the numbers of *cluster*."""
    for name, numbers in NUMBERS.items():
        if cluster is not None and settings.get(name) == TOPOLOGY:
            block[name] = numbers(cluster)
            settings[name] = tuple(block[name])


def check_cut(
    reading: Reading,
    algorithm: Callable[..., Any] | None,
    settings: Mapping[str, Any],
    workload: Workload | None,
    cluster: Topology | None,
    numerics: Numerics,
) -> None:
    """Report a problem if the algorithm partitions the model and this one cannot be cut for this many ranks."""
    from simcluster.algorithms.facts import facts_of

    cut = facts_of(algorithm).cut
    if cut is None or workload is None or cluster is None or reading.problems:
        return
    size = len(cluster.workers)
    try:
        replica = workload.replica(0, size, 0, steps=1, numerics="none")
    except UsageError:
        if numerics == "none":
            return  # reported where it is found for every algorithm
        replica = workload.replica(0, size, 0, steps=1)
    try:
        cut(replica, size, settings)
    except UsageError as error:
        for problem in error.problems:
            reading.bad(("algorithm", problem.key), problem.expected, problem.found)
