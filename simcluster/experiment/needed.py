"""The memory that each node needs: what the check before a run allows, and what a summary predicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from simcluster.algorithms.facts import Facts, facts_of
from simcluster.errors import UsageError
from simcluster.experiment.measurements import SNAPSHOTS
from simcluster.experiment.part import OBSERVED_RANK, can_regroup, in_parts, may_stand
from simcluster.experiment.read.experiment import Experiment
from simcluster.paths.spool import IN_MEMORY_BYTES
from simcluster.regroup.memory import CAPTURES
from simcluster.runs.record import RunRecord
from simcluster.workloads import Replica
from simcluster.workloads.costs.memory import MemoryBytes


class NeededMemory(NamedTuple):
    """The *memory* of one node at its peak; *is_known*: with all that the algorithm holds, else without."""

    memory: MemoryBytes
    is_known: bool


def needed_memory(plan: Experiment) -> dict[str, NeededMemory]:
    """Return what each node needs, by name; empty if it cannot be counted.

    A model whose loss fails here is left to fail in the run, which reports the cause.
    """
    try:
        return _needed(plan)
    except UsageError:
        if plan.numerics == "none":
            raise
        return {}  # the model, or its layers, cannot do without values
    except Exception:
        return {}


def _needed(plan: Experiment) -> dict[str, NeededMemory]:
    facts, size, settings = facts_of(plan.algorithm), len(plan.topology.workers), plan.algorithm_settings
    # The coordinator of real nodes makes no model: it may not fit here.
    makes_none = plan.numerics == "none" or plan.backend != "sim" or facts.phases is not None
    memory = plan.workload.memory("none" if makes_none else "real")
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
    found, peaks = {}, dict[int, NeededMemory]()  # by the id of phases, which many ranks share
    for rank, name in enumerate(plan.topology.workers):
        if rank == OBSERVED_RANK or may_stand(rank, plan.faults):
            phases[rank] = _evaluated(phases[rank], *judged, plan)
        if (needed := peaks.get(id(phases[rank]))) is None:
            needed = peaks[id(phases[rank])] = NeededMemory(max(phases[rank], key=lambda phase: phase.total), is_known)
        found[name] = needed
    return found


def _whole(facts: Facts, size: int, plan: Experiment, memory: MemoryBytes) -> list[list[MemoryBytes]]:
    """Return the only phase of each of *size* ranks with a whole model."""
    if can_regroup(plan):
        captures = CAPTURES + facts.apart(plan.algorithm_settings)
        memory = replace(memory, captures=captures * (memory.weights + memory.optimizer))
    if facts.copies is None:
        return [[memory]] * size
    found, by_copies = [], dict[float, list[MemoryBytes]]()
    for rank in range(size):
        copies = facts.copies(rank, size, plan.algorithm_settings)
        if copies not in by_copies:
            by_copies[copies] = [replace(memory, messages=round(copies * memory.gradients))]
        found.append(by_copies[copies])
    return found


def _judged_by_layer(replica: Replica, memory: MemoryBytes) -> tuple[int, int]:
    """Return (the largest layer, the bytes of a file of weights that is still in memory)."""
    layers = [sum(replica.shapes[place].nbytes for place in layer.parameters) for layer in replica.layers()]
    return max(layers), memory.weights if memory.weights <= IN_MEMORY_BYTES else 0


def _evaluated(phases: list[MemoryBytes], model: int, copy: int, plan: Experiment) -> list[MemoryBytes]:
    """Return *phases* of a rank that evaluates during them and at the end.

    A copy of the weights takes *copy* bytes, and what evaluates it *model*; that is 0 if a copy becomes the model.
    """
    if plan.workload.test_samples is None:
        return phases
    # A model held in parts is evaluated where it is at the end; any other way takes another model.
    parted = in_parts(plan, len(plan.topology.workers))
    often = _evaluations(plan, parted)
    at_end = model if parted else copy
    ends = replace(phases[-1], gradients=0, activations=0, batch=0, messages=0, scratch=0, evaluation=at_end)
    if often:
        phases = [replace(phase, evaluation=model + min(SNAPSHOTS, often) * copy) for phase in phases]
    return [*phases, ends]


def _evaluations(plan: Experiment, parted: bool) -> int:
    """Return how many evaluations there are before the run's end; in parts, only where rank 0 has a whole model."""
    if not parted or facts_of(plan.algorithm).whole(plan.algorithm_settings):
        return plan.steps // plan.evaluate_every
    every = plan.algorithm_settings.get("gather_interval")
    return 0 if every is None else (plan.steps - 1) // max(every, plan.evaluate_every)


def predict_memory(record: RunRecord, needed: Mapping[str, NeededMemory]) -> None:
    """Note in *record* what its nodes were to need, where it is known."""
    for node in record.nodes:
        found = needed.get(node.name)
        if found is not None and found.is_known:
            node.predicted_peak_bytes = found.memory.total
