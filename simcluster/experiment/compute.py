"""Checks of what the nodes of an experiment compute on, before its run: is it there, and is its memory enough?"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from simcluster.errors import Problem, UsageError
from simcluster.experiment.job import places
from simcluster.experiment.preflight import too_small
from simcluster.experiment.read import Experiment, read_experiment
from simcluster.process.accelerators import accelerators_here, missing
from simcluster.runs import words
from simcluster.topology.model.compute import ACCELERATORS, AUTO, CPU, kind_of

log = logging.getLogger("simcluster.run")


def settled(plan: Experiment) -> Experiment:
    """Return *plan* with the CPU wherever `compute: auto` would take an accelerator with too little memory."""
    names = []
    for name, short in too_small(plan).items():
        node = plan.topology.nodes[name]
        cpu = node.device.cpu if node.device is not None and node.compute == AUTO else None
        if cpu is not None and (cpu.memory_bytes is None or short.needed <= cpu.memory_bytes):
            names.append(name)
    if not names:
        return plan
    log.warning("%s: on the CPU, since the accelerator has too little memory", words.listing(names))
    return read_experiment(plan.document, {f"topology.nodes.{name}.compute": CPU for name in names})


def nodes_here(plan: Experiment, options: Mapping[str, Any]) -> set[str]:
    """Return the real nodes that start on this machine; under torchrun or the like none is known to."""
    workers = plan.topology.workers
    if plan.backend == "torch":
        return set() if "RANK" in os.environ else set(workers)
    if plan.backend != "sockets":
        return set()
    placed = zip(workers, *places(plan.topology, options), strict=True)
    return {name for name, address, remote in placed if address is None and remote is None}


def check_compute(plan: Experiment, options: Mapping[str, Any]) -> None:
    """Raise UsageError for nodes that are asked to compute on what is not there.

    In a simulation that is what the device has no numbers of; of real nodes, only those on this machine are known.
    """
    asked = [name for name in plan.topology.workers if kind_of(plan.topology.nodes[name].compute) in ACCELERATORS]
    if not asked:
        return
    problems = _of_numbers(plan, asked) if plan.backend == "sim" else _of_this_machine(plan, asked, options)
    if problems:
        raise UsageError(problems)


def _of_numbers(plan: Experiment, asked: list[str]) -> list[Problem]:
    problems = []
    for name in asked:
        node = plan.topology.nodes[name]
        assert node.device is not None, "a worker has a device"
        if not node.device.has_what_it_is_asked:
            found = node.device.accelerator
            has = f"cpu, {found.kind} or auto" if found is not None else "cpu or auto"
            expected = f"{has}: {node.device.name} has no numbers of it; or give them as its accelerator"
            problems.append(Problem(f"nodes.{name}.compute", repr(node.compute), expected))
    return problems


def _of_this_machine(plan: Experiment, asked: list[str], options: Mapping[str, Any]) -> list[Problem]:
    here = nodes_here(plan, options)
    there = accelerators_here() if here.intersection(asked) else {}
    found = [(name, plan.topology.nodes[name].compute) for name in asked if name in here]
    return [
        Problem(f"nodes.{name}.compute", f"{compute!r} on this machine", wrong)
        for name, compute in found
        if (wrong := missing(compute, there))
    ]
