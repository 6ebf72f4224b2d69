"""Check before a run that the devices of its nodes exist and have enough memory."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from simcluster.algorithms.facts import facts_of
from simcluster.errors import Problem, raise_all
from simcluster.experiment.preflight import too_small
from simcluster.experiment.read.experiment import Experiment
from simcluster.experiment.read.read import read_experiment
from simcluster.job import places
from simcluster.process.accelerators import accelerators_here, missing
from simcluster.runs import words
from simcluster.topology.model.compute import ACCELERATORS, AUTO, CPU, kind_of
from simcluster.topology.model.device import Device

Options = Mapping[str, Any]
"""The backend's own options, by name."""

NO_FLOAT64 = "MPS has no float64, in which error feedback keeps what compression leaves out"

log = logging.getLogger("simcluster.run")


def settled(plan: Experiment, options: Options) -> Experiment:
    """Return *plan* with the CPU wherever `compute: auto` would take an accelerator that cannot do
    the work: too little memory, or MPS for an algorithm that needs float64.

    Settings that follow the speed of the nodes, such as an order or shares, are then computed
    again. If *plan* has such settings, the CPU also replaces accelerators that real nodes on this
    machine lack.
    """
    absent = _absent_here(plan, options) if plan.by_topology else []
    if absent:
        log.warning("%s: on the CPU, since this machine has no accelerator", words.listing(absent))
        plan = _on_cpu(plan, absent)
    if unfit := [name for name in _on_mps(plan, options) if plan.topology.nodes[name].compute == AUTO]:
        log.warning("%s: on the CPU, since %s", words.listing(unfit), NO_FLOAT64)
        plan = _on_cpu(plan, unfit)
    # Repeat: with new shares, the accelerator of another node may be too small.
    while names := _too_small(plan):
        log.warning("%s: on the CPU, since the accelerator has too little memory", words.listing(names))
        plan = _on_cpu(plan, names)
    return plan


def _on_cpu(plan: Experiment, names: list[str]) -> Experiment:
    of_topology = {f"topology.nodes.{name}.compute": CPU for name in names}
    resumes = plan.workload.recipe.weights is None
    changed = read_experiment(plan.document, {**plan.by_topology, **of_topology}, resumes=resumes)
    return replace(changed, by_topology=plan.by_topology)


def _on_mps(plan: Experiment, options: Options) -> list[str]:
    """Return the nodes that would use MPS although the algorithm needs float64."""
    if not facts_of(plan.algorithm).float64(plan.algorithm_settings):
        return []
    here = nodes_here(plan, options) if "mps" in accelerators_here() else set()
    found = []
    for name in plan.topology.workers:
        device, kind = plan.topology.device(name), kind_of(plan.topology.nodes[name].compute)
        known = device.accelerator.kind if device.accelerator is not None else "mps" if name in here else ""
        if kind == "mps" or (kind == AUTO and known == "mps"):
            found.append(name)
    return found


def _absent_here(plan: Experiment, options: Options) -> list[str]:
    """Return the nodes that would use an accelerator of this machine, if it has none."""
    here = nodes_here(plan, options)
    return [name for name in _with_a_choice(plan) if name in here] if here and not accelerators_here() else []


def _too_small(plan: Experiment) -> list[str]:
    """Return the nodes that `compute: auto` should move: only their CPU has enough memory."""
    choice = _with_a_choice(plan)
    found = []
    short = too_small(plan) if choice else {}
    for name, cpu in choice.items():
        if name in short and (cpu.usable_bytes is None or short[name].needed <= cpu.usable_bytes):
            found.append(name)
    return found


def _with_a_choice(plan: Experiment) -> dict[str, Device]:
    """Return name -> CPU of each node that `compute: auto` puts on an accelerator."""
    nodes = {name: plan.topology.nodes[name] for name in plan.topology.workers}
    return {
        name: node.device.cpu
        for name, node in nodes.items()
        if node.compute == AUTO and node.device is not None and node.device.cpu is not None
    }


def nodes_here(plan: Experiment, options: Options) -> set[str]:
    """Return the real nodes that are known to start on this machine.

    Under torchrun, Slurm or Kubernetes, which set RANK, other processes may be anywhere.
    """
    workers = plan.topology.workers
    if plan.backend == "torch":
        return set() if "RANK" in os.environ else set(workers)
    if plan.backend != "sockets":
        return set()
    placed = zip(workers, *places(plan.topology, options), strict=True)
    return {name for name, address, remote in placed if address is None and remote is None}


def check_compute(plan: Experiment, options: Options) -> None:
    """Raise UsageError for nodes that should compute on an accelerator that does not exist.

    In a simulation, the device must have numbers for the accelerator. Real nodes can be checked
    only if they start on this machine.
    """
    asked = [name for name in plan.topology.workers if kind_of(plan.topology.nodes[name].compute) in ACCELERATORS]
    if not asked:
        return
    unfit = [name for name in _on_mps(plan, options) if name in asked]
    raise_all([Problem(f"nodes.{name}.compute", "'mps'", f"cpu or auto: {NO_FLOAT64}") for name in unfit])
    problems = _of_numbers(plan, asked) if plan.backend == "sim" else _of_this_machine(plan, asked, options)
    raise_all(problems)


def _of_numbers(plan: Experiment, asked: list[str]) -> list[Problem]:
    problems = []
    for name in asked:
        node = plan.topology.nodes[name]
        device = plan.topology.device(name)
        if not device.has_what_it_is_asked:
            found = device.accelerator
            has = f"cpu, {found.kind} or auto" if found is not None else "cpu or auto"
            expected = f"{has}: {device.name} has no numbers of it; or give them as its accelerator"
            problems.append(Problem(f"nodes.{name}.compute", repr(node.compute), expected))
    return problems


def _of_this_machine(plan: Experiment, asked: list[str], options: Options) -> list[Problem]:
    here = nodes_here(plan, options)
    there = accelerators_here() if here.intersection(asked) else {}
    found = [(name, plan.topology.nodes[name].compute) for name in asked if name in here]
    return [
        Problem(f"nodes.{name}.compute", f"{compute!r} on this machine", wrong)
        for name, compute in found
        if (wrong := missing(compute, there))
    ]
