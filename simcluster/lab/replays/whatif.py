"""Predict a real run on a cluster with other links; its work takes as long as recorded.

The recorded order does not apply: the changed cluster decides which message arrives first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simcluster.backend import simulator
from simcluster.errors import Problem, UsageError, raise_all
from simcluster.experiment.node import remember
from simcluster.experiment.preflight import check_memory
from simcluster.experiment.read.experiment import Experiment
from simcluster.experiment.read.read import read_experiment
from simcluster.job import ClusterJob
from simcluster.lab.replays.run import read_orders
from simcluster.results import Run, load_run
from simcluster.runs.event_order import EventOrder

CHANGEABLE = "topology."


@dataclass(frozen=True)
class ReplayWhatIf:
    """A run's time as recorded, as predicted without changes, and as predicted with *changes*.

    *busiest_s* is the recorded computing time of the busiest device.
    """

    recorded_s: float
    busiest_s: float
    unchanged_s: float
    changed_s: float
    changes: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Return the times and changes as JSON-compatible values, for the command's output."""
        return {
            "recorded_elapsed_s": self.recorded_s,
            "recorded_compute_s": self.busiest_s,
            "predicted_unchanged_s": self.unchanged_s,
            "predicted_elapsed_s": self.changed_s,
            "changes": self.changes,
        }

    def in_words(self) -> str:
        """Return the times and changes as text, for the command's output."""
        changes = ", ".join(f"{key}={value}" for key, value in self.changes.items())
        share = self.changed_s / self.unchanged_s - 1.0 if self.unchanged_s else 0.0
        return (
            f"recorded: {self.recorded_s:.4g} s, with the busiest device at work for {self.busiest_s:.4g} s\n"
            f"predicted, the same work on the cluster of its topology: {self.unchanged_s:.4g} s\n"
            f"predicted, with {changes}: {self.changed_s:.4g} s ({share:+.1%})"
        )


def what_if(run: str | Path | Run, changes: Mapping[str, Any]) -> ReplayWhatIf:
    """Predict the time of *run*, a run on sockets, with *changes* to its topology.

    Work takes as long as recorded. Raise NotReplayable for a run that cannot be replayed,
    UsageError for an invalid request, or RunError if the run fails on the changed cluster.
    """
    recorded = run if isinstance(run, Run) else load_run(run)
    problems = [
        Problem(f"--what-if {key}", repr(value), f"a key of the cluster, {CHANGEABLE}...: the work stays as recorded")
        for key, value in changes.items()
        if not key.startswith(CHANGEABLE)
    ]
    raise_all(problems)
    orders = read_orders(recorded)
    before = read_experiment(recorded.config, backend="sim")
    after = read_experiment(recorded.config, dict(changes), backend="sim")
    workers = before.topology.workers
    were = before.topology.nodes
    are = after.topology.nodes
    if workers != after.topology.workers:
        raise UsageError("--what-if", ", ".join(after.topology.workers), "the nodes that were recorded")
    changed = [name for name in workers if were[name].device != are[name].device]
    if changed:
        found = f"another device at {', '.join(changed)}"
        raise UsageError("--what-if", found, "changes of links: work takes the recorded time")
    return ReplayWhatIf(
        recorded.summary["elapsed_s"],
        max(node["compute_s"] for node in recorded.summary["nodes"].values()),
        _predicted_s(before, orders),
        _predicted_s(after, orders),
        dict(changes),
    )


def _predicted_s(plan: Experiment, orders: Sequence[EventOrder]) -> float:
    check_memory(plan)
    job = ClusterJob(
        plan.topology.workers, json.dumps(plan.document), plan.seed, topology=plan.topology, faults=plan.faults,
        time_s=plan.time_s,
    )  # fmt: skip
    remember(job.config_json, plan)
    pieces = [list(zip(order.answers.names, order.answers.took_s, strict=True)) for order in orders]
    record = simulator().run_recorded(job, pieces)
    if record.error is not None:
        raise record.error
    return record.elapsed_s
