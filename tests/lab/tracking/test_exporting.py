"""simcluster export and --track: which tracker, into what; what is missing is told before anything runs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import simcluster
from simcluster.errors import UsageError
from simcluster.lab.tracking import check, export
from simcluster.lab.tracking.exporting import KINDS, TrackingFailed
from simcluster.lab.tracking.handover import Handover
from simcluster.process.installed import install_extra
from simcluster.results import load_sweep
from tests.lab.tracking.tracked import small_run

TINY: dict[str, Any] = {
    "name": "tiny",
    "topology": "smolcluster",
    "algorithm": {"name": "sync_ps"},
    "workload": {"name": "quadratic"},
    "stop": {"steps": 3},
}


class Notes:
    """A tracker of this file: what it was handed."""

    where, look = "a list", "read it"

    def __init__(self) -> None:
        self.runs: list[Handover] = []

    def draft(self, run: Any) -> Any:
        return SimpleNamespace(add=list, close=lambda keep: None)

    def write(self, run: Handover) -> bool:
        new = run.id not in [known.id for known in self.runs]
        self.runs += [run] if new else []
        return new


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Notes:
    found = Notes()
    monkeypatch.setattr("simcluster.lab.tracking.live.opened", lambda to, into: found)
    monkeypatch.setattr("simcluster.lab.tracking.exporting.opened", lambda to, into: found)
    return found


def test_a_sweep_is_handed_over_point_by_point_each_run_once(tmp_path: Path, notes: Notes) -> None:
    values = {"algorithm.pull_interval": [1, 2], "stop.steps": [3]}
    swept = simcluster.sweep(TINY, values, out=tmp_path / "pulls", jobs=1, report=False)
    assert str(swept.track("tensorboard")) == "2 runs written to a list\n  read it"
    assert [run.swept["algorithm.pull_interval"] for run in notes.runs] == [1, 2]
    assert {run.place for run in notes.runs} == {"pulls"}
    assert {run.name for run in notes.runs} == {"sync_ps-smolcluster-lr0.1-b16-0"}
    again = load_sweep(tmp_path / "pulls").track("tensorboard")
    assert (again.written, again.known) == (0, 2)
    (swept.folders[0] / "summary.json").unlink()
    assert "1 had been there before, 1 left no run" in str(load_sweep(tmp_path / "pulls").track("tensorboard"))


def test_what_is_not_installed_is_named_with_the_extra_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "mlflow", ("to_mlflow:MlflowTracker", ("no_such_package", "sys")))
    with pytest.raises(UsageError) as told:
        check("mlflow", None, "--track")
    assert str(told.value) == (
        f"--track mlflow: found no package no_such_package, expected it installed: {install_extra('mlflow')}"
    )


def test_a_tracker_nobody_knows_and_places_that_cannot_be_are_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'tensorboard'"):
        check("tensorbord")
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is a file"):
        check("tensorboard", str(tmp_path / "file" / "runs"))
    with pytest.raises(UsageError, match="a folder for tensorboard"):
        check("tensorboard", "https://example.org")


def test_a_tracker_that_fails_is_one_typed_error(tmp_path: Path, notes: Notes) -> None:
    def broken(run: Handover) -> bool:
        raise KeyError("its database")

    notes.write = broken  # type: ignore[method-assign]
    with pytest.raises(TrackingFailed, match="tensorboard failed with KeyError: 'its database'"):
        export(small_run(tmp_path), "tensorboard")


def test_nothing_runs_if_the_tracker_is_not_there(command: Any, tmp_path: Path) -> None:
    for verb in ("run", "sweep"):
        code, out, err = command(verb, "quickstart", "--track", "mlfow", "--track", "wandbb=x")
        assert (code, out) == (2, "")
        assert "did you mean 'mlflow'" in err
        assert "did you mean 'wandb'" in err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_command_writes_runs_that_end_and_runs_that_fail(command: Any, tmp_path: Path, notes: Notes) -> None:
    tiny = ["quickstart", "--set", "workload=quadratic", "--set", "stop.steps=3", "--no-report", "--set", "seed=3"]
    code, out, _ = command("run", *tiny, "--track", "tensorboard", "--out", "fine")
    assert code == 0
    assert "1 run written to a list" in out
    crash = "faults=[{kind: crash, node: pi4, at: 1 us}]"
    fails = ["--algorithm", "zero", "--set", crash]
    code, _, _ = command("run", *tiny, *fails, "--track", "tensorboard=x", "--out", "failed")
    assert code == 1
    assert [run.failed for run in notes.runs] == [False, True]
    code, out, _ = command("export", "fine", "failed", "--to", "tensorboard")
    assert code == 0
    assert out.count("0 runs written to a list, 1 had been there before") == 2
