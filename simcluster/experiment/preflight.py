"""Checks before a run: does the model fit into its nodes' memory, and do their profiles match its work?"""

from __future__ import annotations

import logging
from dataclasses import asdict, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from simcluster.algorithms.facts import facts_of
from simcluster.errors import Problem, UsageError
from simcluster.units import format_size
from simcluster.workloads import WORKLOADS
from simcluster.workloads.costs.memory import Memory

if TYPE_CHECKING:
    from simcluster.experiment.read import Experiment


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
    copy_bytes, memory = memory.gradients, _kept(plan, memory)
    too_small: dict[tuple[int, int], list[str]] = {}
    held: dict[tuple[int, int], int] = {}
    for rank, name in enumerate(plan.topology.workers):
        limit = limits[name]
        beside = round(_copies(plan, rank) * copy_bytes)
        if limit is not None and memory.total + beside > limit:
            too_small.setdefault((limit, memory.total + beside), []).append(name)
            held[limit, memory.total + beside] = beside
    if too_small:
        raise UsageError(
            [
                _problem(plan, names, limit, needed, memory, held[limit, needed])
                for (limit, needed), names in too_small.items()
            ]
        )


def _kept(plan: Experiment, memory: Memory) -> Memory:
    """Return the share of *memory* that a rank holds: an algorithm may partition it."""
    shares = facts_of(plan.algorithm).shares(len(plan.topology.workers), plan.algorithm_settings)
    return replace(memory, **{part: round(share * getattr(memory, part)) for part, share in shares._asdict().items()})


def _copies(plan: Experiment, rank: int) -> float:
    copies = facts_of(plan.algorithm).copies
    return copies(rank, len(plan.topology.workers), plan.algorithm_settings) if copies is not None else 0.0


def _problem(plan: Experiment, names: list[str], limit: int, needed: int, memory: Memory, beside: int) -> Problem:
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


ALIKE = 0.75

log = logging.getLogger("simcluster.run")


def misspelt(plan: Experiment) -> list[str]:
    """Describe each unused profile entry with an unknown workload spelt almost like that of *plan*.

    This is only a warning: a user's workload may have that name.
    """
    name, found = plan.workload.name, []
    for node, of_node in plan.topology.nodes.items():
        profile = of_node.device.profile if of_node.device is not None else None
        for kind, _ in profile.kinds if profile is not None else ():
            measured, _, what = kind.rpartition("/")
            if measured != name and measured not in WORKLOADS and get_close_matches(measured, [name], cutoff=ALIKE):
                found.append(f"nodes.{node}.profile.{kind} is not used: did you mean {f'{name}/{what}'!r}?")
    return found


def warn_of_misspelt(plan: Experiment) -> None:
    """Log a warning per misspelt profile entry."""
    for words in misspelt(plan):
        log.warning("%s", words)
