"""Sweeps on Slurm: the table is a local sweep's, a killed job fails its points alone, and Ctrl-C leaves no job.

Slurm's commands are stand-ins here; `make slurm` has the real ones.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import simcluster
from simcluster.errors import UsageError
from simcluster.lab.sweeps import slurm, slurm_task
from simcluster.lab.sweeps.points import DIED
from tests.lab.sweeps.test_sweep import SMALL
from tests.support.slurm import JOB, install

VALUES = {"algorithm.pull_interval": [1, 2, 3]}


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the queue of a stand-in, with tasks of three points each."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(slurm, "TASKS_PER_JOB", 2)
    monkeypatch.setattr(slurm, "POLL_S", 0.05)
    monkeypatch.setattr(slurm, "LAG_S", 0.0)  # the files of a task are here when it has ended
    return install(tmp_path / "bin")


def sweep(out: Path, **options: Any) -> simcluster.Sweep:
    return simcluster.sweep(SMALL, VALUES, seeds=2, out=out, jobs=1, report=False, **options)


def table(out: Path) -> bytes:
    return (out / "table.csv").read_bytes()


@pytest.mark.slow
def test_slurm_gives_the_table_of_a_local_sweep_and_leaves_no_file_with_calls(tmp_path: Path, queue: Path) -> None:
    found = sweep(tmp_path / "slurm", engine_name="slurm")
    sweep(tmp_path / "local")
    assert table(found.folder) == table(tmp_path / "local")
    # Six points in two tasks: each has a file with its output, and the calls are removed.
    assert sorted(path.name for path in (found.folder / "logs").iterdir()) == [f"slurm-{JOB}_{i}.txt" for i in (0, 1)]


@pytest.mark.slow
def test_the_points_of_a_lost_job_fail_and_the_next_sweep_runs_them(tmp_path: Path, queue: Path) -> None:
    (queue.parent / "lost").write_text("0")
    # Six points in two tasks: the lost one has points 0, 2 and 4.
    found = sweep(tmp_path / "slurm", engine_name="slurm")
    error = f"its job ended; see logs/slurm-{JOB}_0.txt"
    assert [found.table["error"][i] for i in (0, 2, 4)] == [error] * 3
    assert list(found.table["status"]) == ["failed", "done"] * 3
    (queue.parent / "lost").unlink()
    sweep(tmp_path / "slurm", engine_name="slurm")
    sweep(tmp_path / "local")
    assert table(tmp_path / "slurm") == table(tmp_path / "local")


@pytest.mark.slow
def test_an_interrupted_sweep_leaves_no_job_in_the_queue_and_resumes(tmp_path: Path, queue: Path) -> None:
    def interrupt(done: int, of: int, before: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(tmp_path / "slurm", engine_name="slurm", progress=interrupt)
    assert not list(queue.iterdir())
    assert sweep(tmp_path / "slurm", engine_name="slurm").failed == 0
    logs = {path.name for path in (tmp_path / "slurm" / "logs").iterdir()}
    # The array that was cancelled may end after the next one was submitted: it has another id.
    assert f"slurm-{JOB + 1}_0.txt" in logs


def test_the_other_points_of_a_task_run_after_one_that_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_point(document: Any, folder: str, options: Any) -> None:
        if document == "bad":
            raise MemoryError("no room")
        Path(folder).mkdir()

    monkeypatch.setattr(slurm_task, "run_point", run_point)
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    calls = [(document, str(tmp_path / document), {}) for document in ("bad", "good")]
    (tmp_path / slurm.calls_of(3)).write_text(json.dumps({"path": sys.path, "calls": calls}))
    slurm_task.main(tmp_path)
    assert (tmp_path / "bad" / DIED).read_text() == "MemoryError: no room\n"
    assert (tmp_path / "good").is_dir()


def test_a_sweep_with_jobs_in_the_queue_is_refused_and_so_is_an_array_that_slurm_refuses(
    tmp_path: Path, queue: Path
) -> None:
    (queue / "5_0").touch()
    with pytest.raises(UsageError, match="1 tasks of this sweep in the queue, such as 5_0"):
        sweep(tmp_path / "s", engine_name="slurm")
    (queue / "5_0").unlink()
    (queue.parent / "refused").write_text("sbatch: error: invalid partition specified: fast")
    with pytest.raises(UsageError, match="invalid partition specified: fast"):
        sweep(tmp_path / "s", engine_name="slurm")
    (queue.parent / "away").touch()
    with pytest.raises(UsageError, match="Unable to contact slurm controller"):
        sweep(tmp_path / "s", engine_name="slurm")


def test_a_machine_without_slurm_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="no squeue on PATH"):
        sweep(tmp_path / "s", engine_name="slurm")
    assert not (tmp_path / "s").exists()
