"""MLflow: a run in a SQLite file, read back by MLflow's own client. Skipped where MLflow is not installed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from simcluster.lab.tracking.handover import hand_over
from simcluster.lab.tracking.to_mlflow import COMPLETE
from tests.lab.tracking.tracked import run_of_500, small_run

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def mlflow() -> Any:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    for needed in ("sqlalchemy", "alembic"):
        pytest.importorskip(needed)
    return pytest.importorskip("mlflow")


@pytest.fixture(scope="module")
def into(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One database for all tests: making one takes seconds."""
    return tmp_path_factory.mktemp("mlflow")


def runs_of(mlflow: Any, into: Path, seed: int) -> tuple[Any, list[Any]]:
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{into}/mlflow.db")
    experiment = client.get_experiment_by_name("quickstart")
    return client, client.search_runs([experiment.experiment_id], f"params.seed = '{seed}'")


def test_five_hundred_scalars_are_read_back(mlflow: Any, into: Path, tmp_path: Path) -> None:
    assert run_of_500(tmp_path).track("mlflow", str(into)).written == 1
    client, (found,) = runs_of(mlflow, into, 7)
    assert found.info.run_name == "sync_ps-pair-b32-7"
    assert found.info.status == "FINISHED"
    assert found.data.params["topology.links.a-b.bandwidth"] == "1 MB/s"
    assert found.data.metrics["summary/elapsed_s"] == 1.0
    history = client.get_metric_history(found.info.run_id, "m2")
    assert [(metric.step, metric.value) for metric in history] == [(step, step + 2.0) for step in range(1, 101)]
    assert history[29].timestamp - history[9].timestamp == 200
    assert [file.path for file in client.list_artifacts(found.info.run_id)] == ["config.yaml", "summary.json"]


def test_the_same_run_twice_is_there_once_and_a_half_written_one_is_written_anew(
    mlflow: Any, into: Path, tmp_path: Path
) -> None:
    run = small_run(tmp_path, seed=9, failed=True)
    assert [run.track("mlflow", str(into)).written for _ in range(2)] == [1, 0]
    client, (found,) = runs_of(mlflow, into, 9)
    assert found.info.status == "FAILED"
    assert found.data.tags["error"].startswith("PeerLost")
    client.delete_tag(found.info.run_id, COMPLETE)
    assert run.track("mlflow", str(into)).written == 1
    _, (again,) = runs_of(mlflow, into, 9)
    assert again.info.run_id != found.info.run_id
    assert again.data.tags["simcluster.id"] == hand_over(run).id
