"""The wheel claims the names simcluster and simcluster_backends, and no other."""

from __future__ import annotations

import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

SCRIPT = """
import backends
import simcluster

if __name__ == "__main__":
    run = simcluster.run("quickstart", overrides={"stop.steps": 2}, backend="BACKEND", out="out")
    print(backends.MINE, run.summary["status"])
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["sim", "sockets"])
def test_a_users_own_module_named_backends_does_not_hide_ours(backend: str, tmp_path: Path) -> None:
    (tmp_path / "backends.py").write_text("MINE = 'my own'\n")
    (tmp_path / "script.py").write_text(SCRIPT.replace("BACKEND", backend))
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "my own done\n", done.stderr


@pytest.mark.parametrize("package", ["simcluster", "simcluster_backends"])
def test_type_checkers_are_told_that_the_packages_are_typed(package: str) -> None:
    assert (resources.files(package) / "py.typed").is_file()
