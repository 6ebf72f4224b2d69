"""Count the memory that each node needs, to check it before a run and to predict it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from simcluster.algorithms.by_place import by_place
from simcluster.algorithms.facts import Facts, facts_of
from simcluster.errors import UsageError
from simcluster.experiment.measurements import SNAPSHOTS
from simcluster.experiment.node_part import OBSERVED_RANK, can_regroup, in_parts, may_stand
from simcluster.experiment.read.experiment import Experiment
from simcluster.paths.spool import IN_MEMORY_BYTES
from simcluster.regroup.capture_memory import CAPTURES
from simcluster.runs.record import RunRecord
from simcluster.workloads import Replica
from simcluster.workloads.costs.memory import MemoryBytes


class NeededMemory(NamedTuple):
    """The peak *memory* of a node.

    Unless *is_known*, the memory of the algorithm itself is not included.
    """

    memory: MemoryBytes
    is_known: bool


def needed_memory(plan: Experiment) -> dict[str, NeededMemory]:
    """Return node name -> needed memory; empty if it cannot be counted.

    If the model fails here, return nothing: it will fail in the run, too, which reports the cause.
    """
    try:
        return _needed(plan)
    except UsageError:
        if plan.numerics == "none":
            raise
        return {}  # the model cannot be counted without values, but the run computes with values
    except Exception:
        return {}


def _needed(plan: Experiment) -> dict[str, NeededMemory]:
    facts = facts_of(plan.algorithm)
    size = len(plan.topology.workers)
    settings = plan.algorithm_settings
    # Count without values where possible: the model of real nodes may not fit into this process.
    makes_none = plan.numerics == "none" or plan.backend != "sim" or facts.phases is not None
    memory = plan.workload.memory("none" if makes_none else "real")
    # An evaluation needs (bytes of another model, bytes of a copy of the weights).
    judged = 0, memory.weights
    if facts.phases is not None:
        replica = plan.workload.replica(0, size, plan.seed, steps=1, numerics="none")
        parted = in_parts(plan, size)
        phases = facts.phases(replica, settings, memory, parted)
        if parted and not facts.whole(settings):
            judged = _judged_by_layer(replica, memory)
    else:
        phases = _whole(facts, size, plan, memory)
    is_known = facts.phases is not None or facts.copies is not None
    found = {}
    # Many ranks share one list of phases, so compute the peak of each list once, by its id.
    peaks: dict[int, NeededMemory] = {}
    for rank, name in enumerate(plan.topology.workers):
        if rank == OBSERVED_RANK or may_stand(rank, plan.possible_faults):
            phases[rank] = _evaluated(phases[rank], *judged, plan)
        if (needed := peaks.get(id(phases[rank]))) is None:
            needed = peaks[id(phases[rank])] = NeededMemory(max(phases[rank], key=lambda phase: phase.total), is_known)
        found[name] = needed
    return found


def _whole(facts: Facts, size: int, plan: Experiment, memory: MemoryBytes) -> list[list[MemoryBytes]]:
    """Return the memory of each of *size* ranks that hold the whole model, as a single phase."""
    if can_regroup(plan, losses_are_planned=plan.backend == "sim"):
        captures = CAPTURES + facts.apart(plan.algorithm_settings)
        memory = replace(memory, captures=captures * (memory.weights + memory.optimizer))
    if facts.copies is None:
        return [[memory]] * size
    found = []
    settings = by_place(plan.algorithm_settings, plan.topology, range(size), memory.gradients)
    by_copies = dict[float, list[MemoryBytes]]()
    for rank in range(size):
        copies = facts.copies(rank, size, settings)
        if copies not in by_copies:
            by_copies[copies] = [replace(memory, messages=round(copies * memory.gradients))]
        found.append(by_copies[copies])
    return found


def _judged_by_layer(replica: Replica, memory: MemoryBytes) -> tuple[int, int]:
    """Return (bytes of the largest layer, bytes of the file of weights if it is kept in memory)."""
    layers = [sum(replica.shapes[place].nbytes for place in layer.parameters) for layer in replica.layers()]
    return max(layers), memory.weights if memory.weights <= IN_MEMORY_BYTES else 0


def _evaluated(phases: list[MemoryBytes], model: int, copy: int, plan: Experiment) -> list[MemoryBytes]:
    """Return *phases* with the memory of evaluations added, and one more phase for the evaluation
    at the end.

    A copy of the weights takes *copy* bytes. The model that evaluates it takes *model* bytes, 0 if
    the copy itself becomes the model.
    """
    if plan.workload.test_samples is None:
        return phases
    # At the end, a rank with a part of the model evaluates layer by layer, and any other rank needs
    # one more model.
    parted = in_parts(plan, len(plan.topology.workers))
    often = _evaluations(plan, parted)
    at_end = model if parted else copy
    ends = replace(phases[-1], gradients=0, activations=0, batch=0, messages=0, scratch=0, evaluation=at_end)
    if often:
        phases = [replace(phase, evaluation=model + min(SNAPSHOTS, often) * copy) for phase in phases]
    return [*phases, ends]


def _evaluations(plan: Experiment, parted: bool) -> int:
    """Return the number of evaluations before the end of the run.

    If ranks hold parts of the model, evaluations happen only when rank 0 has gathered the whole.
    """
    if not parted or facts_of(plan.algorithm).whole(plan.algorithm_settings):
        return plan.steps // plan.evaluate_every
    every = plan.algorithm_settings.get("gather_interval")
    return 0 if every is None else (plan.steps - 1) // max(every, plan.evaluate_every)


def predict_memory(record: RunRecord, needed: Mapping[str, NeededMemory]) -> None:
    """Note the *needed* memory of each node in *record*, if it is known completely."""
    for node in record.nodes:
        found = needed.get(node.name)
        if found is not None and found.is_known:
            node.predicted_peak_bytes = found.memory.total
