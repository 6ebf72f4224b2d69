"""Checks of an experiment before its run: its data, its algorithm's cut of the model, memory, profiles."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from simcluster.algorithms.facts import facts_of
from simcluster.documents.limits import MOST_STEPS
from simcluster.documents.reading import Reading
from simcluster.documents.user_code import calling
from simcluster.errors import Problem, UsageError
from simcluster.experiment.keys import ExperimentBlock
from simcluster.runs import words
from simcluster.topology import Topology
from simcluster.units import format_size
from simcluster.workloads import WORKLOADS, Replica, Workload
from simcluster.workloads.costs.memory import Memory
from simcluster.workloads.workload import Numerics

if TYPE_CHECKING:
    from simcluster.experiment.read import Experiment

IN_PARTS = ("pipeline", "tensor_parallel")
"""Algorithms in which no rank has a gradient of the whole model."""

log = logging.getLogger("simcluster.run")


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
    needed, there = 2 * replicas * workload.weights_bytes, _memory_bytes()
    if needed > there:
        who = "a replica" if replicas == 1 else f"{replicas} replicas"
        found = f"real, but weights and gradients of {who} are {format_size(needed)}"
        expected = f"none, which computes nothing; or at most {format_size(there)}, the memory of this machine"
        raise UsageError(Problem("numerics", found, expected))


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


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
    where = words.listing([*names[:3], f"{len(names) - 3} more"] if len(names) > 4 else names)
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
    """Warn of each unused profile entry with an unknown workload, perhaps a user's, spelt almost like *plan*'s."""
    name = plan.workload.name
    for node, of_node in plan.topology.nodes.items():
        profile = of_node.device.profile if of_node.device is not None else None
        for kind, _ in profile.kinds if profile is not None else ():
            measured, _, what = kind.rpartition("/")
            if measured != name and measured not in WORKLOADS and get_close_matches(measured, [name], cutoff=0.75):
                log.warning("nodes.%s.profile.%s is not used: did you mean %r?", node, kind, f"{name}/{what}")
