"""Checks of an experiment before its run: the memory of its nodes, and their profiles."""

from __future__ import annotations

import logging
from dataclasses import asdict
from difflib import get_close_matches

from simcluster.algorithms.facts import facts_of
from simcluster.errors import Problem, UsageError
from simcluster.experiment.needed import Needed, needed_memory
from simcluster.experiment.read import Experiment
from simcluster.runs import words
from simcluster.units import format_size
from simcluster.workloads import WORKLOADS

log = logging.getLogger("simcluster.run")


def check_memory(plan: Experiment) -> dict[str, Needed]:
    """Return the memory that each node needs; see `needed_memory`.

    Raise UsageError if nodes have too little, with one problem for all nodes that share the same numbers.
    """
    needed = needed_memory(plan)
    if not plan.check_memory:
        return needed
    facts, size = facts_of(plan.algorithm), len(plan.topology.workers)
    too_small: dict[tuple[int, Needed], list[str]] = {}
    for rank, name in enumerate(plan.topology.workers):
        device = plan.topology.nodes[name].device
        limit = None if device is None or facts.idle(rank, size, plan.algorithm_settings) else device.memory_bytes
        if limit is not None and name in needed and needed[name].memory.total > limit:
            too_small.setdefault((limit, needed[name]), []).append(name)
    if too_small:
        raise UsageError([_problem(plan, names, *numbers) for numbers, names in too_small.items()])
    return needed


def _problem(plan: Experiment, names: list[str], limit: int, needed: Needed) -> Problem:
    where = words.listing([*names[:3], f"{len(names) - 3} more"] if len(names) > 4 else names)
    sizes = asdict(needed.memory)
    messages, total = sizes.pop("messages"), needed.memory.total
    parts = [f"{format_size(size)} of {part}" for part, size in sizes.items() if size]
    if needed.is_known:
        parts.append(f"{format_size(messages)} of messages of {plan.algorithm_name}")
    else:
        parts.append(f"plus the memory of {plan.algorithm_name}, which is not counted")
    return Problem(
        f"nodes.{names[0]}.memory",
        f"{format_size(limit)} on {where}, {format_size(total - limit)} too little",
        f"at least {format_size(total)} ({', '.join(parts)}), or check_memory: false",
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
