"""Checks of an experiment before its run: its data, its algorithm's cut of the model, memory, profiles."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from simcluster.algorithms.facts import facts_of
from simcluster.documents.limits import MOST_STEPS
from simcluster.documents.reading import Reading
from simcluster.documents.user_code import calling
from simcluster.errors import Problem, UsageError
from simcluster.experiment.keys import ExperimentBlock
from simcluster.topology import Topology
from simcluster.units import format_size
from simcluster.workloads import WORKLOADS, Replica, Workload
from simcluster.workloads.costs.memory import Memory
from simcluster.workloads.workload import Numerics

if TYPE_CHECKING:
    from simcluster.experiment.read import Experiment

IN_PARTS = ("pipeline", "tensor_parallel")
"""Algorithms in which no rank has a gradient of the whole model."""

ALIKE = 0.75

log = logging.getLogger("simcluster.run")


def count_steps(reading: Reading, workload: Workload | None, cluster: Topology | None, top: ExperimentBlock) -> int:
    """Return the steps of every rank; create a replica, so that undistributable data is found now.

    The same applies to work that needs values in a run without any, or that is too large for this machine.
    """
    if workload is None or cluster is None or reading.problems:
        return 1
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
    """Raise UsageError if the weights and gradients of *replicas* exceed this machine's memory.

    Only workloads that know their size without being created are checked.
    """
    if workload.weights_bytes is None:
        return
    needed, there = 2 * replicas * workload.weights_bytes, _memory_bytes()
    if needed > there:
        who = "a replica" if replicas == 1 else f"{replicas} replicas"
        found = f"real, but weights and gradients of {who} are {format_size(needed)}"
        expected = f"none, which computes nothing; or at most {format_size(there)}, the memory of this machine"
        raise UsageError(Problem("numerics", found, expected))


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


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
        if cluster is not None and settings.get(name) == "topology":
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


def check_memory(plan: Experiment) -> None:
    """Raise UsageError if nodes have too little memory, with one problem for all nodes that share the same numbers.

    A rank needs all that `Memory` counts plus the copies of a known algorithm. A model whose loss fails here is left to
    fail in the run, which reports the cause.
    """
    limits = {name: device.memory_bytes for name, node in plan.topology.nodes.items() if (device := node.device)}
    if not plan.check_memory or not any(limits.values()):
        return
    try:
        memory = plan.workload.memory(plan.numerics)
    except UsageError:
        raise
    except Exception:
        return
    facts, size, settings = facts_of(plan.algorithm), len(plan.topology.workers), plan.algorithm_settings
    # An algorithm may partition what a rank holds; its copies are of whole gradients.
    shares = facts.shares(size, settings)._asdict()
    held = replace(memory, **{part: round(share * getattr(memory, part)) for part, share in shares.items()})
    too_small: dict[tuple[int, int, int], list[str]] = {}
    for rank, name in enumerate(plan.topology.workers):
        limit = limits[name]
        beside = round(facts.copies(rank, size, settings) * memory.gradients) if facts.copies is not None else 0
        if limit is not None and held.total + beside > limit:
            too_small.setdefault((limit, held.total + beside, beside), []).append(name)
    if too_small:
        raise UsageError([_problem(plan, names, *numbers, held) for numbers, names in too_small.items()])


def _problem(plan: Experiment, names: list[str], limit: int, needed: int, beside: int, memory: Memory) -> Problem:
    shown = [*names[:3], f"{len(names) - 3} more"] if len(names) > 4 else names
    where = " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
    parts = [f"{format_size(size)} of {part}" for part, size in asdict(memory).items() if size]
    if facts_of(plan.algorithm).copies is not None:
        parts.append(f"{format_size(beside)} of messages of {plan.algorithm_name}")
    else:
        parts.append(f"plus the memory of {plan.algorithm_name}, which is not counted")
    return Problem(
        f"nodes.{names[0]}.memory",
        f"{format_size(limit)} on {where}, {format_size(needed - limit)} too little",
        f"at least {format_size(needed)} ({', '.join(parts)}), or check_memory: false",
    )


def warn_of_misspelt(plan: Experiment) -> None:
    """Log a warning for each unused profile entry with an unknown workload spelt almost like that of *plan*.

    This is only a warning: a user's workload may have that name.
    """
    name = plan.workload.name
    for node, of_node in plan.topology.nodes.items():
        profile = of_node.device.profile if of_node.device is not None else None
        for kind, _ in profile.kinds if profile is not None else ():
            measured, _, what = kind.rpartition("/")
            if measured != name and measured not in WORKLOADS and get_close_matches(measured, [name], cutoff=ALIKE):
                log.warning("nodes.%s.profile.%s is not used: did you mean %r?", node, kind, f"{name}/{what}")
