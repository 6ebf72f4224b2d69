"""A valid experiment: what runs where, on what, for how long."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from simcluster.documents.limits import MOST_STEPS
from simcluster.experiment.read.keys import CheckpointSettings, ObserveBlock
from simcluster.fault_plans.kinds import Fault
from simcluster.runs.calls import SCRIPT
from simcluster.topology import Topology
from simcluster.workloads import Workload
from simcluster.workloads.workload import Numerics

NAMED = ("algorithm", "workload")
"""Blocks that name a function."""


@dataclass(frozen=True)
class Experiment:
    """A valid experiment. *document* is its resolved form, which parses back to an equal one. *by_topology* has the
    original values of the settings that the topology decided, by dotted key; *noticed*, the draws of user code from the
    system's randomness while it was read.
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
        """The steps of each rank; None for a script that ends by itself."""
        return self.steps if self.steps < MOST_STEPS or self.algorithm_name != SCRIPT else None

    @property
    def own_code(self) -> list[str]:
        """The user's own functions, as "/file.py:function"."""
        return own_code(self.document)


def own_code(document: Mapping[str, Any]) -> list[str]:
    """Return the user's functions in a resolved *document*, as "/file.py:function"."""
    return [str(document[block]["path"]) for block in NAMED if "path" in document[block]]
