"""Write runs to MLflow, by default to a SQLite file: INTO/mlflow.db, with artifacts next to it.

Numbers are written in batches: a call per number would take seconds instead of a tenth of a second.
A run has a tag with its id, and a second tag once the run is complete. A complete run is not
written again; an incomplete run is replaced.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simcluster.lab.tracking.handover import Handover, Heading, RunDraft, TrackedValue, key_name

ID, COMPLETE = "simcluster.id", "simcluster.complete"
METRICS_A_CALL, PARAMS_A_CALL = 1000, 100
"""Limits of an MLflow server on the metrics and the parameters in one call."""
LONGEST_PARAM, LONGEST_TAG = 6000, 5000
"""Limits of an MLflow server on the characters of a parameter and of a tag."""


class MlflowTracker:
    """A tracker that writes to an MLflow server or file."""

    def __init__(self, into: str | None) -> None:
        uri, self._artifacts = into or "", None
        if "://" not in uri:
            folder = Path(into or "runs/mlflow").absolute()
            folder.mkdir(parents=True, exist_ok=True)
            uri, self._artifacts = f"sqlite:///{folder / 'mlflow.db'}", (folder / "artifacts").as_uri()
        # MLflow sends telemetry unless it is disabled before the import.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        mlflow: Any = importlib.import_module("mlflow")
        for name in ("mlflow", "alembic"):  # Both packages log every step of creating a database.
            logging.getLogger(name).setLevel(logging.WARNING)
        self._client = mlflow.MlflowClient(tracking_uri=uri)
        self._entities = mlflow.entities
        self._experiments: dict[str, str] = {}
        self.where = uri
        self.look = f"its page, {uri}" if uri.startswith("http") else f"mlflow ui --backend-store-uri {uri}"

    def write(self, run: Handover) -> bool:
        experiment = self._experiment(run.place)
        if self._is_there(experiment, run.id):
            return False
        client = self._client
        began_ms = round(1000 * run.began_s)
        of_run = {ID: run.id, "simcluster.experiment": run.experiment, **run.tags}
        tags = {key_name(name): str(value)[:LONGEST_TAG] for name, value in of_run.items()}
        created = client.create_run(experiment, start_time=began_ms, run_name=run.name, tags=tags).info.run_id
        params = [
            self._entities.Param(key_name(name), str(value)[:LONGEST_PARAM]) for name, value in run.params.items()
        ]
        for start in range(0, len(params), PARAMS_A_CALL):
            client.log_batch(created, params=params[start : start + PARAMS_A_CALL])
        ended_s = run.summary.get("elapsed_s", 0.0)
        totals = [(f"summary/{name}", run.last_step, ended_s, value) for name, value in run.summary.items()]
        self.log(created, run.began_s, [*run.values, *(TrackedValue(*total) for total in totals)])
        for path in run.files:
            client.log_artifact(created, str(path))
        status = "FAILED" if run.failed else "FINISHED"
        client.set_terminated(created, status, end_time=began_ms + round(1000 * ended_s))
        client.set_tag(created, COMPLETE, "yes")
        return True

    def draft(self, run: Heading) -> RunDraft:
        started_ms = round(1000 * run.began_s)
        tags = {"simcluster.draft": "yes"}
        created = self._client.create_run(
            self._experiment(run.experiment), start_time=started_ms, run_name=run.name, tags=tags
        )
        return _MlflowDraft(self, created.info.run_id, run.began_s)

    def log(self, run_id: str, began_s: float, values: Sequence[TrackedValue]) -> None:
        """Write *values* in batches; *began_s* is the run's time 0 in seconds since the epoch."""
        began_ms = round(1000 * began_s)
        metrics = [
            self._entities.Metric(key_name(name), value, began_ms + round(1000 * time_s), step)
            for name, step, time_s, value in values
        ]
        for start in range(0, len(metrics), METRICS_A_CALL):
            self._client.log_batch(run_id, metrics=metrics[start : start + METRICS_A_CALL])

    def end(self, run_id: str, *, keep: bool) -> None:
        """End the draft *run_id*; delete it unless *keep*."""
        self._client.set_terminated(run_id, "KILLED")
        if not keep:
            self._client.delete_run(run_id)

    def _experiment(self, name: str) -> str:
        if name not in self._experiments:
            found = self._client.get_experiment_by_name(name)
            place = f"{self._artifacts}/{key_name(name)}" if self._artifacts else None
            create = self._client.create_experiment
            self._experiments[name] = found.experiment_id if found else create(name, artifact_location=place)
        return self._experiments[name]

    def _is_there(self, experiment: str, run_id: str) -> bool:
        """Return whether *experiment* has a complete copy of the run; delete incomplete copies."""
        there = False
        for found in self._client.search_runs([experiment], f"tags.`{ID}` = '{run_id}'"):
            if found.data.tags.get(COMPLETE) == "yes":
                there = True
            else:
                self._client.delete_run(found.info.run_id)
        return there


@dataclass(frozen=True)
class _MlflowDraft:
    """The run *run_id* of *tracker*, in progress since *began_s*."""

    tracker: MlflowTracker
    run_id: str
    began_s: float

    def add(self, values: Sequence[TrackedValue]) -> None:
        self.tracker.log(self.run_id, self.began_s, values)

    def close(self, *, keep: bool) -> None:
        self.tracker.end(self.run_id, keep=keep)
