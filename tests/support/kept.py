"""Simulated runs with checkpoints, for tests: without a run folder, which takes longer than such a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simcluster_backends.sim import run_cluster

from simcluster.checkpoints.restore import RestoredState
from simcluster.experiment.checkpointing import begin_with, conclude, keeping_of, last_complete, restart_of
from simcluster.experiment.node import remember
from simcluster.experiment.read.read import read_experiment
from simcluster.fault_plans.kinds import faults_to_come
from simcluster.job import ClusterJob
from simcluster.runs.record import RunRecord

MNIST = {"name": "mnist_mlp", "hidden": 8, "batch_size": 4, "optimizer": "adamw", "learning_rate": 0.01}


def config(algorithm: str, workload: Mapping[str, Any] = MNIST, *, steps: int = 8, **settings: Any) -> dict[str, Any]:
    """An experiment of four ranks, of which one is slower now and then."""
    return {
        "topology": "thunderbolt-mesh-4",
        "algorithm": {"name": algorithm, **settings},
        "workload": dict(workload),
        "stop": {"steps": steps},
        "evaluate_every": steps,
        "seed": 3,
    }


def play(
    experiment: Mapping[str, Any],
    folder: Path,
    overrides: Mapping[str, Any] | None = None,
    begins_with: RestoredState | None = None,
    *,
    max_restarts: int = 0,
) -> RunRecord:
    """The record of *experiment*, whose checkpoints go below *folder*. Raises what the run died of."""
    plan = read_experiment(experiment, overrides)
    keeping, _ = keeping_of(plan, folder, begins_with)
    document = json.dumps(plan.document)
    remember(document, plan)
    job = ClusterJob(
        plan.topology.workers,
        document,
        plan.seed,
        topology=plan.topology,
        faults=faults_to_come(plan.faults, keeping.began_s),
        options={"max_restarts": max_restarts},
        again=restart_of(plan, folder, keeping, document),
        keeping=keeping,
    )
    record = run_cluster(job)
    if record.error is not None:
        raise record.error
    record.extra["columns"] = conclude(record, plan, keeping)
    return record


def play_on(folder: Path, step: int | None = None, overrides: Mapping[str, Any] | None = None) -> RunRecord:
    """The record of the rest of a run, whose checkpoints are below *folder*; it keeps nothing more itself."""
    found = last_complete(folder, step)
    plan = read_experiment(found.manifest.config, overrides)
    document = {key: value for key, value in plan.document.items() if key != "checkpoint"}
    return play(document, folder, begins_with=begin_with(found, plan))


def hashes(record: RunRecord) -> list[str | None]:
    """Of every rank's weights."""
    return [node.weights_sha256 for node in record.nodes]
