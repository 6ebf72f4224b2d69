"""A valid experiment, as read from its file and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from simcluster.documents.limits import MOST_STEPS
from simcluster.experiment.read.keys import CheckpointSettings, ObserveBlock
from simcluster.fault_plans.kinds import Cut, Fault
from simcluster.runs.calls import SCRIPT
from simcluster.topology import Topology
from simcluster.workloads import Workload
from simcluster.workloads.workload import Numerics
from simcluster.worlds import PlannedWorld

NAMED = ("algorithm", "workload")
"""The blocks of an experiment that name a function."""


@dataclass(frozen=True)
class Experiment:
    """A valid experiment. *document* is its resolved form, from which an equal one can be read.

    *by_topology* maps the dotted key of each setting that the topology decided to its original
    value. *noticed* has the draws of user code from the system's randomness during the reading.
    """

    name: str
    topology: Topology
    algorithm: Callable[..., Any]
    algorithm_settings: dict[str, Any]
    workload: Workload
    steps: int
    time_s: float | None
    evaluate_every: int
    evaluate_consensus: bool
    faults: tuple[Fault, ...]
    worlds: tuple[PlannedWorld, ...]
    seed: int
    numerics: Numerics
    check_memory: bool
    checkpoint: CheckpointSettings | None
    observe: ObserveBlock
    regroup: bool
    backend: str
    document: dict[str, Any] = field(repr=False)
    by_topology: Mapping[str, Any] = field(default_factory=dict, repr=False)
    noticed: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def algorithm_name(self) -> str:
        return str(self.document["algorithm"].get("name") or self.document["algorithm"]["path"])

    @property
    def planned_steps(self) -> int | None:
        """The number of steps of each rank; None for a script that decides itself when to end."""
        return self.steps if self.steps < MOST_STEPS or self.algorithm_name != SCRIPT else None

    @property
    def possible_faults(self) -> tuple[Fault, ...]:
        return possible(self.faults, self.worlds)

    @property
    def own_code(self) -> list[str]:
        """The user's own functions, as "/file.py:function"."""
        return own_code(self.document)


def possible(faults: tuple[Fault, ...], worlds: tuple[PlannedWorld, ...]) -> tuple[Fault, ...]:
    """Return *faults*, and for each of *worlds* a cut, since it may lose any node."""
    return (*faults, *(Cut(spells=(), link="") for _ in worlds))


def own_code(document: Mapping[str, Any]) -> list[str]:
    """Return the user's functions in a resolved *document*, as "/file.py:function"."""
    worlds = document.get("world") or []
    blocks = [*map(document.__getitem__, NAMED), *(worlds if isinstance(worlds, list) else [worlds])]
    return [str(block["path"]) for block in blocks if "path" in block]
