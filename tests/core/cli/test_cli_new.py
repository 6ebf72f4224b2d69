"""`simcluster new` writes a project that runs, holds, and passes a linter; and touches nothing that is there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from simcluster.cli.new import EXAMPLES
from simcluster.documents.yaml import load

SUBJECTS = {
    "own-algorithm": ["local_sgd.py:local_sgd"],
    "own-model": ["local_sgd", "--workload", "spirals.py:make_workload", "--nodes", "1,2"],
    "shelf": ["sync_ps"],
}


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES)
def test_a_new_project_runs_and_passes_a_linter(
    example: str, command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = command("new", "project", "--example", example)
    assert (code, err) == (0, "")
    folder = tmp_path / "project"
    written = {f"project/{name}" for name in ("README.md", "experiment.yaml", "topology.yaml")}
    assert written <= set(out.splitlines())
    monkeypatch.chdir(folder)
    code, out, err = command("run", "experiment.yaml", "--no-report", "--set", "stop.steps=5", "--out", "run")
    assert (code, err) == (0, "")
    assert json.loads((folder / "run" / "summary.json").read_text())["status"] == "done"
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "F,I,B,UP", "."]
    linted = subprocess.run(ruff, cwd=folder, capture_output=True, text=True)
    assert linted.returncode == 0, linted.stdout


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES)
def test_what_a_new_project_holds_passes_verify(
    example: str, command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command("new", "project", "--example", example)
    monkeypatch.chdir(tmp_path / "project")
    code, out, _ = command("verify", *SUBJECTS[example], "--quick", "--backend", "sim")
    assert code == 0, out


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_editor_finds_the_schema_of_each_file(example: str, command: Any, tmp_path: Path) -> None:
    command("new", "project", "--example", example)
    files = sorted((tmp_path / "project").glob("*.yaml"))
    assert [file.name for file in files] == ["experiment.yaml", "topology.yaml"]
    for file in files:
        found = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", file.read_text().splitlines()[0])
        assert found is not None
        validator = Draft7Validator(json.loads((file.parent / found[1]).read_text()))
        assert [error.message for error in validator.iter_errors(load(file).data)] == []


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_commands_of_its_readme_exist(example: str, command: Any, tmp_path: Path) -> None:
    from typer.main import get_command

    from simcluster.cli.app import app

    command("new", "project", "--example", example)
    text = (tmp_path / "project" / "README.md").read_text()
    commands = get_command(app).commands  # type: ignore[attr-defined]
    shown = re.findall(r"^    simcluster ([a-z]+)", text, flags=re.MULTILINE)
    assert len(shown) > 3
    assert set(shown) <= set(commands)


@pytest.mark.exhaustive
def test_the_test_of_a_new_algorithm_passes(command: Any, tmp_path: Path) -> None:
    command("new", "project")
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "learn"],
        cwd=tmp_path / "project", capture_output=True, text=True,
    )  # fmt: skip
    assert tested.returncode == 0, tested.stdout


def test_a_folder_with_something_in_it_is_refused_and_left_as_it_is(command: Any, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name, found in (("project", "which is not empty"), ("file", "the file file")):
        code, out, err = command("new", name)
        assert (code, out) == (2, "")
        assert found in err
    assert [path.name for path in (tmp_path / "project").iterdir()] == ["mine.txt"]


def test_an_empty_folder_and_the_current_one_will_do(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert command("new", ".")[0] == 0
    assert (tmp_path / "here" / "experiment.yaml").is_file()


def test_an_unknown_example_is_answered_with_the_nearest(command: Any, tmp_path: Path) -> None:
    code, _, err = command("new", "project", "--example", "own-modle")
    assert code == 2
    assert "did you mean 'own-model'" in err
    assert list(tmp_path.iterdir()) == []
