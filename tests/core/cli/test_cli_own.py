"""Own algorithms and workloads on the command line: file.py:function, relative to where the command is given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.root import ROOT

OWN = ROOT / "experiments" / "own"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    for name in ("local_sgd.py", "spirals.py"):
        (tmp_path / "code" / name).write_text((OWN / name).read_text())
    return tmp_path


@pytest.mark.parametrize(
    "how",
    [
        ("--algorithm", "code/local_sgd.py:local_sgd", "--workload", "code/spirals.py:make_workload"),
        ("--set", "algorithm=code/local_sgd.py:local_sgd", "--set", "workload={path: code/spirals.py:make_workload}"),
        ("--set", "algorithm={path: code/local_sgd.py:local_sgd, interval: 10}", "--workload",
         "code/spirals.py:make_workload"),
    ],
    ids=["options", "short", "mapping"],
)  # fmt: skip
def test_a_path_on_the_command_line_is_relative_to_where_it_is_given(command: Any, own: Path, how: Any) -> None:
    code, out, err = command("run", "quickstart", *how, "--set", "stop.steps=2", "--no-report", "--json")
    assert code == 0, err
    assert json.loads(out)["algorithm"] == "local_sgd.py:local_sgd"


def test_a_path_inside_a_file_stays_relative_to_that_file(command: Any, own: Path) -> None:
    (own / "code" / "own.yaml").write_text(
        "topology: {generator: star, workers: 2}\nalgorithm: local_sgd.py:local_sgd\n"
        "workload: {path: spirals.py:make_workload}\nstop: {steps: 1}\n"
    )
    code, out, err = command("run", "code/own.yaml", "--no-report", "--json")
    assert code == 0, err
    assert json.loads(out)["steps"] == 1


@pytest.mark.slow
def test_sweep_and_whatif_take_them_too(command: Any, own: Path) -> None:
    how = ("--algorithm", "code/local_sgd.py:local_sgd", "--workload", "code/spirals.py:make_workload", "--no-report")
    code, out, err = command(
        "sweep", "quickstart", *how, "--set", "algorithm.interval=1,2", "--set", "stop.steps=2", "--jobs", "1", "--json"
    )
    assert code == 0, err
    assert [row["status"] for row in json.loads(out)] == ["done", "done"]
    code, out, err = command(
        "whatif",
        "quickstart",
        *how,
        "--goal",
        "step-time",
        "--set",
        "stop.steps=1",
        "--seeds",
        "1",
        "--jobs",
        "1",
        "--json",
    )
    assert code == 0, err
    assert json.loads(out)["value"] > 0


def test_the_shell_reads_its_own_options_in_errors(command: Any, own: Path) -> None:
    code, _, err = command("run", "quickstart", "--algorithm", "code/local_sgd.py:local_sdg", "--set", "seed=-1")
    assert code == 2
    assert "algorithm.path: found 'local_sdg'" in err
    assert "did you mean 'local_sgd'?" in err
    assert "seed (set by --set): found -1" in err
    assert not (own / "runs").exists()
