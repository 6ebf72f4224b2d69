"""Module-level state that ranks share in the simulator, and have each for itself on real nodes.

That a run changes such state proves nothing: a cache is harmless. So a run that did is repeated, shortened, with the
user's code loaded once for all ranks and once for each. If the results differ, one rank has read what another wrote.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from simcluster.backend import simulator
from simcluster.documents.own_state import changed, loaded_apart, path_of, state_of
from simcluster.documents.user_code import modules_beside
from simcluster.experiment.node import remember
from simcluster.experiment.read.experiment import Experiment
from simcluster.job import ClusterJob
from simcluster.runs.doubts import SHARED, Warned, warned
from simcluster.runs.record import RunRecord

STEPS = 8
"""The length of a repeated run."""


@dataclass(frozen=True)
class AlgorithmCopies:
    """An *algorithm* loaded several times: rank i runs copy i modulo their number; *modules* are those of each copy."""

    algorithm: Callable[..., Any]
    modules: list[ModuleType]


def apart(plan: Experiment, copies: int) -> AlgorithmCopies:
    """Return the user's algorithm of *plan*, loaded *copies* times, each with its own module-level state."""
    loaded = [loaded_apart(plan.document["algorithm"]["path"], plan.seed) for _ in range(copies)]
    workers, functions = plan.topology.workers, [function for function, _ in loaded]

    @functools.wraps(functions[0])
    async def algorithm(node: Any, replica: Any, **settings: Any) -> None:
        await functions[workers.index(node.name) % copies](node, replica, **settings)

    return AlgorithmCopies(algorithm, [module for _, modules in loaded for module in modules])


class SharedState:
    """Watches the user's modules during a simulation of *plan*, from now on."""

    def __init__(self, plan: Experiment) -> None:
        self._plan, path = plan, plan.document["algorithm"].get("path")
        self._watches = path is not None and plan.backend == "sim" and len(plan.topology.workers) > 1
        self._modules = list(modules_beside(path_of(path)).values()) if self._watches else []
        self._before = state_of(self._modules)

    def warnings(self, record: RunRecord) -> list[Warned]:
        """Return a warning if the run *record* has changed state that ranks share, and if that mattered."""
        places = changed(self._before, state_of(self._modules)) if record.error is None else []
        if not places or not self._matters():
            return []
        text = (
            f"{', '.join(places[:5])}: the algorithm changes this at module level, and all ranks share it here, while "
            "on real nodes each has its own: results differ; keep it in a local variable, and send what others need"
        )
        return [warned(SHARED, text, at=places[0])]

    def _matters(self) -> bool:
        plan, size = self._plan, len(self._plan.topology.workers)
        short = replace(plan, steps=min(plan.steps, STEPS), time_s=None, checkpoint=None)
        together = _result(short, 1)
        return together != _result(short, size) and together == _result(short, 1)


def _result(plan: Experiment, copies: int) -> tuple[str, Any]:
    """Return what must be equal of a run of *plan* with *copies* of the user's code."""
    config_json = json.dumps(plan.document) + "\n"  # unlike that of the run itself
    remember(config_json, replace(plan, algorithm=apart(plan, copies).algorithm))
    job = ClusterJob(
        names=plan.topology.workers, config_json=config_json, seed=plan.seed, topology=plan.topology, faults=plan.faults
    )
    record = simulator().run_cluster(job)
    return record.trace_sha256, [type(record.error), *(node.weights_sha256 for node in record.nodes)]
