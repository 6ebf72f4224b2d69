"""Check that the parts of an experiment fit together: data, settings, and the split of the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import psutil

from simcluster.algorithms import ALGORITHMS
from simcluster.algorithms.by_place import check_places
from simcluster.algorithms.facts import facts_of
from simcluster.algorithms.model_parallel.order import AUTO, ranks_of
from simcluster.algorithms.model_parallel.placement import numbers_of
from simcluster.documents.limits import MOST_STEPS
from simcluster.documents.reading import DocumentReading
from simcluster.documents.settings import Function
from simcluster.documents.user_code import calling
from simcluster.errors import UsageError
from simcluster.experiment.read.experiment import Experiment
from simcluster.experiment.read.keys import ExperimentBlock
from simcluster.process.memory import memory_bytes, return_freed_memory
from simcluster.runs.schema import MOST_NODES
from simcluster.runs.words import listing
from simcluster.topology import Topology
from simcluster.units import format_size
from simcluster.workloads import Replica, Workload
from simcluster.workloads.workload import Numerics

IN_PARTS = ("expert_parallel", "pipeline", "tensor_parallel")
"""The names of the algorithms in which no rank has a gradient of the whole model."""


def count_steps(
    reading: DocumentReading, workload: Workload, cluster: Topology, top: ExperimentBlock, *, in_parts: bool
) -> int:
    """Return the number of steps of every rank; make a replica to find errors in data and model.

    If *in_parts*, the algorithm gives no rank the whole model.
    """
    steps = top.stop.steps
    epochs = top.stop.epochs
    numerics = top.numerics
    size = len(cluster.workers)

    key = (size, top.seed, steps, epochs, numerics, in_parts, top.backend)
    if key in workload.tried:  # another point of the sweep has tried it
        return workload.tried[key]

    def try_one() -> Replica:
        if numerics == "real":
            # The simulator holds all replicas in this process; real nodes may be on other machines.
            check_host(workload, size if top.backend == "sim" else 1)
        if in_parts and top.backend != "sim":
            return_freed_memory()  # the layers that are tried may together exceed the memory
        how: dict[str, Any] = {"numerics": numerics, "in_parts": in_parts, "rehearses": True}
        replica = workload.replica(0, size, top.seed, steps, epochs, **how)
        workload.recipe.check_steps(replica.steps)
        if numerics == "none":
            replica.gradient_cost(next(replica.batches()))
            replica.apply_cost()
        else:
            takes = f"a model and a loss that take a batch: {replica.first_batch().shapes()}"
            calling(workload.model, replica.try_out, takes)
        return replica

    replica: Replica | None = reading.collect(lambda: calling(workload.model, try_one, "a model that works"))
    if replica is None:
        return 1
    if replica.steps > MOST_STEPS:
        reading.bad(("stop", "epochs"), f"at most {MOST_STEPS} steps", f"{epochs}, which is {replica.steps} steps")
    else:
        workload.tried[key] = replica.steps
    return replica.steps


def check_host(workload: Workload, replicas: int) -> None:
    """Raise UsageError if weights and gradients of this number of *replicas* exceed the memory.

    Do nothing if the size of the weights or of this machine's memory is unknown.
    """
    if workload.weights_bytes is None:
        return
    try:
        needed, there = 2 * replicas * workload.weights_bytes, memory_bytes()
    except psutil.Error:  # its memory is unknown
        return
    if needed > there:
        who = "a replica" if replicas == 1 else f"{replicas} replicas"
        found = f"real, but weights and gradients of {who} are {format_size(needed)}"
        expected = f"none, which computes nothing; or at most {format_size(there)}, the memory of this machine"
        raise UsageError("numerics", found, expected)


def put_numbers(block: dict[str, Any], settings: dict[str, Any], cluster: Topology, algorithm: Function | None) -> None:
    """Replace the value `topology` of an algorithm's settings by the numbers of *cluster*.

    Also replace an order of names by ranks in *settings*, and by all names in *block*. With
    `order: auto`, do nothing: `put_order` calls this again.
    """
    names = cluster.workers
    ranks: tuple[int, ...] = tuple(range(len(names)))
    if facts_of(algorithm).places is not None and settings.get("order") is not None:
        if settings["order"] == AUTO:
            return
        ranks = settings["order"] = ranks_of(settings["order"], len(names), names)
        block["order"] = [names[rank] for rank in ranks]
    for name, numbers in numbers_of(settings, cluster, ranks).items():
        block[name], settings[name] = list(numbers), numbers


def put_order(reading: DocumentReading, plan: Experiment) -> None:
    """Replace `order: auto` by the order that the algorithm chooses.

    Report checkpoints if the order leaves out a node, since a checkpoint needs every rank.
    """
    places = facts_of(plan.algorithm).places
    settings = plan.algorithm_settings
    cluster = plan.topology
    if places is not None and settings.get("order") == AUTO:
        replica = a_replica(plan.workload, len(cluster.workers), plan.steps, plan.numerics)
        if replica is None:
            return

        def choose() -> None:
            settings["order"] = places(replica, settings, cluster, plan.checkpoint is not None)
            put_numbers(plan.document["algorithm"], settings, cluster, plan.algorithm)

        report_settings(reading, choose)
    idle = left_out(plan)
    if plan.checkpoint is not None and idle:
        expected = f"no checkpoints, since {', '.join(idle)} would take no part: algorithm.order must have all nodes"
        reading.bad(("checkpoint",), expected, "checkpoints of all ranks")


def left_out(plan: Experiment) -> list[str]:
    """Return the names of the nodes that take no part in the algorithm."""
    names, facts = plan.topology.workers, facts_of(plan.algorithm)
    return [name for rank, name in enumerate(names) if facts.idle(rank, len(names), plan.algorithm_settings)]


def a_replica(workload: Workload, size: int, steps: int, numerics: Numerics) -> Replica | None:
    """Return a replica to count costs with, without values if possible.

    Return None if it cannot be made: `count_steps` has reported the reason.
    """
    try:
        return workload.replica(0, size, 0, steps=steps, numerics="none")
    except UsageError:
        return None if numerics == "none" else workload.replica(0, size, 0, steps=steps)


def check_cut(reading: DocumentReading, plan: Experiment) -> None:
    """Report a problem if the algorithm cannot split the model for this number of ranks, or if its
    sums do not fit the topology.
    """
    facts = facts_of(plan.algorithm)
    size = len(plan.topology.workers)
    settings = plan.algorithm_settings

    def weights_bytes() -> int:
        replica = a_replica(plan.workload, size, 1, plan.numerics)
        return 0 if replica is None else sum(weights.nbytes for weights in replica.shapes)

    report_settings(reading, lambda: check_places(settings, plan.topology, weights_bytes))
    cut, layered = facts.cut, facts.layered(settings)
    if cut is None and not layered:
        return
    replica = a_replica(plan.workload, size, 1, plan.numerics)
    if replica is not None and cut is not None:
        try:
            cut(replica, size, settings)
        except UsageError as error:  # a run that computes has the values that a loss may read
            reads = plan.numerics == "real" and error.problems[0].key == "numerics"
            tried = plan.workload.replica(0, size, 0, steps=1) if reads else replica
            report_settings(reading, lambda: cut(tried, size, settings))
    if replica is not None and layered:
        report_settings(reading, replica.layers)


def report_settings(reading: DocumentReading, check: Callable[[], object]) -> None:
    """Run *check*, and report its problems as those of the algorithm's settings, or of the workload."""
    try:
        check()
    except UsageError as error:
        for problem in error.problems:
            path = (problem.key,) if problem.key == "workload" else ("algorithm", problem.key)
            reading.bad(path, problem.expected, problem.found)


def check_size(reading: DocumentReading, plan: Experiment) -> None:
    """Report a run with more working nodes than a run directory can list."""
    size = len(plan.topology.workers)
    working = (
        size if plan.possible_faults else facts_of(plan.algorithm).working(size, plan.steps, plan.algorithm_settings)
    )
    if working > MOST_NODES:
        expected = (
            f"at most {MOST_NODES:,}, which the files of a run can list; a larger cluster only if few of its nodes "
            "work (fedbuff with concurrency, without faults)"
        )
        reading.bad(("topology",), expected, f"{working:,} nodes that may work, of {size:,}")


def check_patience(reading: DocumentReading, plan: Experiment) -> None:
    """Report a patience that could never end the run, or with ranks that cannot end together."""
    patience = plan.document["stop"].get("patience")
    if patience is None:
        return
    facts, every = facts_of(plan.algorithm), plan.evaluate_every
    why = facts.runs_on if facts.in_step else "its ranks do not all end a step together"
    if not why and facts.apart(plan.algorithm_settings):
        why = "results of earlier steps are under way when a step ends"
    if why:
        fit = [name for name, known in ALGORITHMS.items() if (found := facts_of(known)).in_step and not found.runs_on]
        expected = f"none with {plan.algorithm_name}, since {why}; with their defaults {listing(fit)} fit"
        reading.bad(("stop", "patience"), expected)
    if plan.workload.test is None:
        reading.bad(("stop", "patience"), "none, or a workload with held-out samples (test), whose loss decides")
    if patience >= (number := (plan.steps - 1) // every):
        most = f"at most {number - 1}" if number > 1 else "none, or a lower evaluate_every"
        why = f"{number} evaluations come before the last of {plan.steps} steps (evaluate_every: {every})"
        reading.bad(("stop", "patience"), f"{most}, since {why}, and the first is always a gain")


def check_fit(
    reading: DocumentReading, top: ExperimentBlock, algorithm: Function | None, settings: Mapping[str, Any]
) -> None:
    """Report settings of the experiment that *algorithm* does not support."""
    name = getattr(algorithm, "__name__", "")
    if top.checkpoint is not None and top.checkpoint.best and not facts_of(algorithm).whole(settings):
        reading.bad(("checkpoint", "best"), "no best: rank 0 of this algorithm has no whole model to evaluate")
    if name == "expert_parallel" and settings.get("load") is not None and top.numerics == "real":
        expected = "null, since the router decides; or numerics: none, where nothing is routed"
        reading.bad(("algorithm", "load"), expected, str(settings["load"]))
    if name == "expert_parallel" and (settings.get("layout") or {}).get("tensor", 1) > 1 and top.numerics == "real":
        reading.bad(("algorithm", "layout", "tensor"), "1, or numerics: none, since only its time is simulated")
    if top.observe.gradient_norms and name in IN_PARTS:
        expected = "false: in this algorithm no rank has a gradient of the whole model"
        reading.bad(("observe", "gradient_norms"), expected)
    elif top.observe.gradient_norms and settings.get("bucket_bytes") is not None:
        expected = "no algorithm.bucket_bytes with it: its buckets leave before the gradient is whole"
        reading.bad(("observe", "gradient_norms"), expected)
