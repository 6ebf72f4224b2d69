"""Checks of an experiment before its run: the memory of its nodes, and their profiles."""

from __future__ import annotations

import logging
from dataclasses import asdict, replace
from difflib import get_close_matches

from simcluster.algorithms.facts import facts_of
from simcluster.errors import Problem, UsageError
from simcluster.experiment.read import Experiment
from simcluster.runs import words
from simcluster.units import format_size
from simcluster.workloads import WORKLOADS
from simcluster.workloads.costs.memory import Memory

log = logging.getLogger("simcluster.run")


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
        limit = None if facts.idle(rank, size, settings) else limits[name]
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
