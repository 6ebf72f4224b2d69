"""Check an experiment before its run: the memory of its nodes, and the names in their profiles."""

from __future__ import annotations

import logging
from dataclasses import asdict
from difflib import get_close_matches
from typing import NamedTuple

from simcluster.algorithms.facts import facts_of
from simcluster.errors import Problem, UsageError
from simcluster.experiment.needed_memory import NeededMemory, needed_memory
from simcluster.experiment.read.experiment import Experiment
from simcluster.runs import words
from simcluster.units import format_size
from simcluster.workloads import WORKLOADS

log = logging.getLogger("simcluster.run")


class MemoryShortage(NamedTuple):
    """A shortage of memory: a node has *limit* usable bytes, and *needs* more."""

    limit: int
    needs: NeededMemory

    @property
    def needed(self) -> int:
        return self.needs.memory.total


def check_memory(plan: Experiment) -> dict[str, NeededMemory]:
    """Return the memory that each node needs; see `needed_memory`.

    Raise UsageError if any node has less. Nodes with the same numbers share one problem.
    """
    needed = needed_memory(plan)
    alike: dict[tuple[MemoryShortage, bool], list[str]] = {}
    for name, short in _short(plan, needed).items():
        alike.setdefault((short, _own_memory(plan, name)), []).append(name)
    if alike:
        raise UsageError([_problem(plan, names, short, is_own) for (short, is_own), names in alike.items()])
    return needed


def too_small(plan: Experiment) -> dict[str, MemoryShortage]:
    """Return node name -> shortage for each node with too little memory on its device."""
    return _short(plan, needed_memory(plan))


def _short(plan: Experiment, needed: dict[str, NeededMemory]) -> dict[str, MemoryShortage]:
    if not plan.check_memory:
        return {}
    facts = facts_of(plan.algorithm)
    size = len(plan.topology.workers)
    found = {}
    for rank, name in enumerate(plan.topology.workers):
        device = plan.topology.nodes[name].device
        limit = None if device is None or facts.idle(rank, size, plan.algorithm_settings) else device.usable_bytes
        if limit is not None and name in needed and needed[name].memory.total > limit:
            found[name] = MemoryShortage(limit, needed[name])
    return found


def _own_memory(plan: Experiment, name: str) -> bool:
    """Return whether the node *name* computes on an accelerator with separate memory."""
    device = plan.topology.nodes[name].device
    found = device.accelerator if device is not None and device.cpu is not None else None
    return found is not None and found.memory_bytes is not None


def _problem(plan: Experiment, names: list[str], short: MemoryShortage, is_own: bool) -> Problem:
    where = words.some_of(names)
    sizes = asdict(short.needs.memory)
    device = plan.topology.nodes[names[0]].device
    assert device is not None, "it has a limit"
    messages = sizes.pop("messages")
    key = "accelerator.memory" if is_own else "memory"
    parts = [f"{format_size(size)} of {part}" for part, size in sizes.items() if size]
    if short.needs.is_known:
        parts.append(f"{format_size(messages)} of messages of {plan.algorithm_name}")
    else:
        parts.append(f"plus the memory of {plan.algorithm_name}, which is not counted")
    return Problem(
        f"nodes.{names[0]}.{key}",
        f"{device.memory_words} on {where}, {format_size(short.needed - short.limit)} too little",
        f"at least {format_size(short.needed)} ({', '.join(parts)}){', or compute: cpu' if is_own else ''}, or "
        "check_memory: false",
    )


def warn_of_misspelt(plan: Experiment) -> None:
    """Warn of each profile entry with an unknown workload that is spelt almost like the one of
    *plan*.

    Such an entry is not used; it may also be meant for another workload of the user.
    """
    name = plan.workload.name
    for node, of_node in plan.topology.nodes.items():
        profile = of_node.device.profile if of_node.device is not None else None
        for kind, _ in profile.kinds if profile is not None else ():
            measured, _, what = kind.rpartition("/")
            if measured != name and measured not in WORKLOADS and get_close_matches(measured, [name], cutoff=0.75):
                log.warning("nodes.%s.profile.%s is not used: did you mean %r?", node, kind, f"{name}/{what}")
