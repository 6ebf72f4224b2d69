"""The possible damage of a fault plan: the nodes that a run may lose, and the untouched nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf
from typing import Any

from simcluster.experiment.read.experiment import Experiment
from simcluster.fault_plans.kinds import Crash, Cut, Fault, Hang, Join, Leave, Partition, Restart, severed
from tools.swarm.case import Case
from tools.swarm.draw.faults import DEAD_S

GOES = (Crash, Restart, Join, Leave)
"""Faults that remove a node or its state."""


@dataclass(frozen=True)
class Hits:
    """The damage of the faults that *happened*.

    *gone* are the nodes that died, left, joined late or rejoined, or may have counted as dead.
    *comers* are the nodes that joined late or rejoined. *apart* are the pairs of nodes that may
    have lost each other.
    """

    plan: Experiment
    happened: tuple[Fault, ...]
    gone: frozenset[str]
    comers: frozenset[str]
    apart: frozenset[tuple[str, str]]

    @property
    def may_be_lost(self) -> frozenset[str]:
        return self.gone | {name for pair in self.apart for name in pair}

    @property
    def core(self) -> list[str]:
        """The nodes that no fault can have removed or cut off, by rank."""
        return [name for name in self.plan.topology.workers if name not in self.may_be_lost]

    @property
    def are_harmless(self) -> bool:
        """Whether the faults cost nothing but time."""
        return not self.may_be_lost

    def of(self, *kinds: type[Fault]) -> list[Fault]:
        return [fault for fault in self.happened if isinstance(fault, kinds)]


def hits_of(case: Case, plan: Experiment, rows: Sequence[dict[str, Any]]) -> Hits:
    """Return the damage to *case* by the faults in *rows*, which come from a summary.

    *plan* is the experiment of the case.
    """
    told = [row["plan"] for row in rows]
    happened = tuple(fault for fault in plan.faults if dict(fault.spec) in told)
    names = plan.topology.workers
    silences = [fault for fault in happened if isinstance(fault, (Hang, Cut, Partition))]
    patient = sum(_lasts(fault) for fault in silences) < case.options.get("dead_s", DEAD_S)
    gone = {names[fault.rank] for fault in happened if isinstance(fault, GOES)}
    apart: set[tuple[str, str]] = set()
    if not patient:
        gone |= {names[fault.rank] for fault in silences if isinstance(fault, Hang)}
        for fault in silences:
            if isinstance(fault, (Cut, Partition)):
                cut = severed(fault, plan.topology)
                pairs = combinations(range(len(names)), 2)
                apart |= {(names[a], names[b]) for a, b in pairs if cut(a, b) or cut(b, a)}
    comers = {names[fault.rank] for fault in happened if isinstance(fault, (Restart, Join))}
    return Hits(plan, happened, frozenset(gone), frozenset(comers), frozenset(apart))


def _lasts(fault: Fault) -> float:
    return sum(end_s - start_s for start_s, end_s in fault.spells) if fault.spells else inf
