"""Find module-level state of user code that ranks share in the simulator, but not on real nodes.

A change of such state does not prove a mistake, since a cache is harmless. So a run that changed
such state is repeated for a few steps, with the user's code loaded once for all ranks, and once per
rank. If the results differ, one rank has read what another rank wrote.
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
"""The number of steps of a repeated run."""


@dataclass(frozen=True)
class AlgorithmCopies:
    """An *algorithm* that was loaded several times, and all *modules* of its copies.

    Rank i runs copy i, modulo the number of copies.
    """

    algorithm: Callable[..., Any]
    modules: list[ModuleType]


def apart(plan: Experiment, copies: int) -> AlgorithmCopies:
    """Return the user's algorithm of *plan*, loaded *copies* times, each with its own module-level state."""
    loaded = [loaded_apart([plan.document["algorithm"]["path"]], plan.seed) for _ in range(copies)]
    workers = plan.topology.workers
    functions = [function for (function,), _ in loaded]

    @functools.wraps(functions[0])
    async def algorithm(node: Any, replica: Any, **settings: Any) -> None:
        await functions[workers.index(node.name) % copies](node, replica, **settings)

    return AlgorithmCopies(algorithm, [module for _, modules in loaded for module in modules])


class SharedState:
    """A watch over the module-level state of the user's code in a simulation of *plan*."""

    def __init__(self, plan: Experiment) -> None:
        self._plan = plan
        path = plan.document["algorithm"].get("path")
        self._watches = path is not None and plan.backend == "sim" and len(plan.topology.workers) > 1
        self._modules = list(modules_beside(path_of(path)).values()) if self._watches else []
        self._before = state_of(self._modules)

    def warnings(self, record: RunRecord) -> list[Warned]:
        """Return a warning if the run of *record* changed state that ranks share, and the result
        depends on it.
        """
        places = changed(self._before, state_of(self._modules)) if record.error is None else []
        if not places or not self._matters():
            return []
        text = (
            f"{', '.join(places[:5])}: the algorithm changes this at module level, and all ranks share it here, while "
            "on real nodes each has its own: results differ; keep it in a local variable, and send what others need"
        )
        return [warned(SHARED, text, at=places[0])]

    def _matters(self) -> bool:
        """Return whether a short run depends on which ranks share a copy of the code."""
        plan = self._plan
        size = len(self._plan.topology.workers)
        short = replace(plan, steps=min(plan.steps, STEPS), time_s=None, checkpoint=None)
        together = _result(short, 1)
        # An algorithm that is not repeatable differs anyway, which says nothing about shared state.
        return together != _result(short, size) and together == _result(short, 1)


def _result(plan: Experiment, copies: int) -> tuple[str, Any]:
    """Return the result of a run of *plan* with *copies* of the user's code, to compare."""
    # The line feed keeps this plan apart from the cached one of the run itself.
    config_json = json.dumps(plan.document) + "\n"
    remember(config_json, replace(plan, algorithm=apart(plan, copies).algorithm))
    job = ClusterJob(
        names=plan.topology.workers,
        config_json=config_json,
        seed=plan.seed,
        topology=plan.topology,
        faults=plan.faults,
        worlds=plan.worlds,
    )
    record = simulator().run_cluster(job)
    return record.trace_sha256, [type(record.error), *(node.weights_sha256 for node in record.nodes)]
