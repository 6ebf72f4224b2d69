"""The library's interface for its users: what `dir` and `help` show, and a user's file under mypy in strict mode."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import simcluster
from tests.support.root import ROOT

USERS = ROOT / "tests" / "whole" / "a_users_file.py"


CONFIG = """
[mypy]
strict = True
[mypy-torch.*,numpy.*,pandas.*,plotly.*,networkx.*,pyarrow.*,scipy.*]
follow_imports = skip
"""
"""Types of other packages take mypy minutes, and are not what is checked here."""


@pytest.mark.slow
def test_a_users_file_passes_mypy_in_strict_mode_and_one_with_a_wrong_type_does_not(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "mypy.ini").write_text(CONFIG)
    (tmp_path / "mine.py").write_text(USERS.read_text())
    (tmp_path / "wrong.py").write_text(USERS.read_text().replace('"step-time"', "3"))
    command = [sys.executable, "-m", "mypy", "--no-incremental", "mine.py", "wrong.py"]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert len(errors) == 1, done.stdout + done.stderr
    assert errors[0].startswith("wrong.py:")
    assert 'incompatible type "int"; expected "str"' in errors[0], "types are not Any"


@pytest.mark.slow
def test_a_users_file_runs(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, USERS], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "2"


def test_dir_is_the_interface_and_each_function_documents_all_its_arguments() -> None:
    assert dir(simcluster) == sorted(simcluster.__all__)
    assert all(hasattr(simcluster, name) for name in simcluster.__all__)
    for function in (simcluster.run, simcluster.sweep, simcluster.whatif):
        text = inspect.getdoc(function) or ""
        arguments = inspect.signature(function).parameters
        missing = [name for name in arguments if f"*{name}*" not in text]
        assert missing == []
        assert "**kwargs" not in str(inspect.signature(function))
