"""Checks of an experiment while it is read: its data, its algorithm's settings and cut of the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from simcluster.algorithms.facts import facts_of
from simcluster.documents.limits import MOST_STEPS
from simcluster.documents.reading import Reading
from simcluster.documents.user_code import calling
from simcluster.errors import Problem, UsageError
from simcluster.experiment.keys import ExperimentBlock
from simcluster.process.memory import memory_bytes
from simcluster.topology import Topology
from simcluster.units import format_size
from simcluster.workloads import Replica, Workload
from simcluster.workloads.workload import Numerics

IN_PARTS = ("pipeline", "tensor_parallel")
"""Algorithms in which no rank has a gradient of the whole model."""


def count_steps(reading: Reading, workload: Workload, cluster: Topology, top: ExperimentBlock) -> int:
    """Return the steps of every rank; create a replica, so that data or work that it cannot have is found now."""
    steps, epochs, numerics = top.stop.steps, top.stop.epochs, top.numerics
    size = len(cluster.workers)

    def try_one() -> Replica:
        if numerics == "real":
            # A simulator holds all replicas in this process; the nodes of other backends may be elsewhere.
            check_host(workload, size if top.backend == "sim" else 1)
        replica = workload.replica(0, size, top.seed, steps, epochs, numerics=numerics)
        if numerics == "none":
            replica.gradient_cost(next(replica.batches()))
            replica.apply_cost()
        return replica

    replica: Replica | None = reading.collect(lambda: calling(workload.model, try_one, "a model that works"))
    if replica is None:
        return 1
    if replica.steps > MOST_STEPS:
        reading.bad(("stop", "epochs"), f"at most {MOST_STEPS} steps", f"{epochs}, which is {replica.steps} steps")
    return replica.steps


def check_host(workload: Workload, replicas: int) -> None:
    """Raise UsageError if the weights and gradients of *replicas*, where known, exceed this machine's memory."""
    if workload.weights_bytes is None:
        return
    needed, there = 2 * replicas * workload.weights_bytes, memory_bytes()
    if needed > there:
        who = "a replica" if replicas == 1 else f"{replicas} replicas"
        found = f"real, but weights and gradients of {who} are {format_size(needed)}"
        expected = f"none, which computes nothing; or at most {format_size(there)}, the memory of this machine"
        raise UsageError(Problem("numerics", found, expected))


def put_numbers(block: dict[str, Any], settings: dict[str, Any], cluster: Topology) -> None:
    """Replace `topology` in an algorithm's *block* and *settings* by the numbers of *cluster*."""
    names = cluster.workers
    if settings.get("flops_per_s") == "topology":  # per rank in order
        devices = [cluster.nodes[name].device for name in names]
        block["flops_per_s"] = [float(device.flops_per_s) for device in devices if device is not None]
        settings["flops_per_s"] = tuple(block["flops_per_s"])
    if settings.get("bandwidth_Bps") == "topology":  # per route from each rank to the next
        # Include last to first: interleaved stages wrap around. A single rank sends nothing, at any speed.
        routes = list(zip(names, [*names[1:], names[0]], strict=True))
        block["bandwidth_Bps"] = [cluster.route_bandwidth_Bps(*route) for route in routes] if len(names) > 1 else [1.0]
        settings["bandwidth_Bps"] = tuple(block["bandwidth_Bps"])


def check_cut(
    reading: Reading,
    algorithm: Callable[..., Any],
    settings: Mapping[str, Any],
    workload: Workload,
    cluster: Topology,
    numerics: Numerics,
) -> None:
    """Report a problem if the algorithm partitions the model and this one cannot be cut for this many ranks."""
    cut, size = facts_of(algorithm).cut, len(cluster.workers)
    if cut is None:
        return
    try:
        replica = workload.replica(0, size, 0, steps=1, numerics="none")
    except UsageError:
        if numerics == "none":
            return  # reported where it is found for every algorithm
        replica = workload.replica(0, size, 0, steps=1)
    report_settings(reading, lambda: cut(replica, size, settings))


def report_settings(reading: Reading, check: Callable[[], object]) -> None:
    """Run *check*, and report its problems as those of the algorithm's settings."""
    try:
        check()
    except UsageError as error:
        for problem in error.problems:
            reading.bad(("algorithm", problem.key), problem.expected, problem.found)


def check_fit(
    reading: Reading, top: ExperimentBlock, algorithm: Callable[..., Any] | None, settings: Mapping[str, Any]
) -> None:
    """Report settings that this *algorithm* does not support."""
    name = getattr(algorithm, "__name__", "")
    if top.checkpoint is not None and top.checkpoint.best and not facts_of(algorithm).whole(settings):
        reading.bad(("checkpoint", "best"), "no best: rank 0 of this algorithm has no whole model to evaluate")
    if top.observe.gradient_norms and name in IN_PARTS:
        expected = "false: in this algorithm no rank has a gradient of the whole model"
        reading.bad(("observe", "gradient_norms"), expected)
    elif top.observe.gradient_norms and settings.get("bucket_bytes") is not None:
        expected = "no algorithm.bucket_bytes with it: its buckets leave before the gradient is whole"
        reading.bad(("observe", "gradient_norms"), expected)
