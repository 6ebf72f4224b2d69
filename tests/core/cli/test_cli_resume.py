"""The command `simcluster resume`: what it lists, goes on with, and says."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

import simcluster
from simcluster.cli.run import resume
from simcluster.cli.terminal.show import warnings_told
from simcluster.errors import CheckpointError, CheckpointWarning, UsageError
from tests.support.kept import config


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "run"
    kept = {"checkpoint": {"every": 4, "best": "accuracy"}}
    simcluster.run(config("all_reduce_dp") | kept, out=folder, report=False)
    return folder


def test_it_lists_what_there_is(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    resume(run, show=True)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines] == ["step 4", "step 8"]
    assert all("4 ranks, loss" in line and "accuracy" in line for line in lines)
    resume(run, show=True, as_json=True)
    rows = json.loads(capsys.readouterr().out)
    assert [row["step"] for row in rows] == [4, 8]
    assert Path(rows[0]["path"]).is_file()
    resume(run.parent, show=True)
    assert "no checkpoints in" in capsys.readouterr().out


def test_it_goes_on_and_prints_the_summary(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    resume(run, step=4, sets=["stop.steps=6"], out=tmp_path / "on", report=False, as_json=True)
    summary = json.loads(capsys.readouterr().out)
    assert (summary["resumed"]["step"], summary["steps"]) == (4, 6)
    resume(run, step=4, out=tmp_path / "again", report=False)
    assert "8 steps" in capsys.readouterr().out


def test_it_has_the_options_of_run_for_real_nodes(run: Path, tmp_path: Path) -> None:
    given = {"ssh_config": tmp_path / "config", "token_file": tmp_path / "token", "max_restarts": -1}
    with pytest.raises(UsageError, match="an option of real nodes on sim, expected backend sockets") as error:
        resume(run, backend="sim", ssh=False, coordinator="127.0.0.1:0", plain_http=True, **given)  # type: ignore[arg-type]
    assert {problem.key for problem in error.value.problems} == {
        "--no-ssh", "--ssh-config", "--token-file", "--coordinator", "--plain-http",
    }  # fmt: skip
    with pytest.raises(UsageError, match="max_restarts: found -1") as error:
        resume(run, backend="sockets", step=4, out=tmp_path / "x", **given)  # type: ignore[arg-type]
    assert {"max_restarts", "token_file"} <= {problem.key for problem in error.value.problems}
    assert not (tmp_path / "x").exists()


def test_what_is_passed_over_is_said(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "checkpoints" / "step-00000009.json").write_text("{")
    with pytest.raises(CheckpointError, match="the run ends there"):
        resume(run, out=tmp_path / "x", report=False)
    assert "warning: passed over" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_what_is_said_of_checkpoints_is_a_line_for_people_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings_told():
        for _ in range(2):
            warnings.warn("no checkpoint of step 7: the disk is full", CheckpointWarning, stacklevel=1)
    assert capsys.readouterr().err == "warning: no checkpoint of step 7: the disk is full\n" * 2
