"""`simcluster doctor` without a topology, and every command without torch: what is missing, and how to get it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from simcluster.cli import machine
from simcluster.process.installed import NO_TORCH, install_extra
from tests.support.root import ROOT


def test_every_extra_is_looked_for_by_a_module_of_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert set(machine.EXTRAS) == set(extras) - {"torch", "dev", "docs"}
    installs = {"distributed": "distributed", "mlflow": "mlflow-skinny", "kaleido": "kaleido", "PIL": "pillow"}
    for extra, (module, _) in machine.EXTRAS.items():
        package = installs.get(module, module).lower()
        assert any(re.split(r"[><=;\[ ]", wanted)[0].lower() == package for wanted in extras[extra]), extra


def test_a_machine_with_everything_needed_can_start_a_run(command: Any) -> None:
    code, out, err = command("doctor", "--json")
    assert (code, err) == (0, "")
    said = json.loads(out)
    names = [one["name"] for one in said["machine"]]
    assert said["ok"] is True
    assert {"python", "torch", "memory", "cores", "ports", "ssh", "tmux", "chromium", "extra api"} <= set(names)
    assert all(bool(one["do"]) != one["ok"] for one in said["machine"] if one["name"] != "accelerator" or one["do"])
    code, out, err = command("doctor")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].startswith("ok")
    assert out.splitlines()[-1] == "a run can start here"


def test_what_is_missing_has_a_command_and_what_is_needed_an_exit_code(
    command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "free_memory_bytes", lambda: 2**20)
    monkeypatch.setattr(machine.shutil, "which", lambda name: None)
    monkeypatch.setattr(machine, "_MAC_CHROME", "/nowhere")
    monkeypatch.setattr(machine, "find_spec", lambda name: None)
    monkeypatch.setattr(machine.sys, "platform", "linux")
    code, out, _ = command("doctor")
    assert code == 1
    assert "missing   memory" in out
    for line in (
        "memory: close programs",
        "tmux: sudo apt install tmux",
        "ssh: sudo apt install openssh-client",
        "chromium: sudo apt install chromium",
        f"extra api: {install_extra('api')}",
        "a run cannot start here",
    ):
        assert line in out


@pytest.fixture
def without_torch(tmp_path: Path) -> dict[str, str]:
    """The environment of a Python in which torch cannot be found."""
    folder = tmp_path / "without"
    folder.mkdir()
    (folder / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}


NEED_TORCH = (
    ["run", "quickstart"],
    ["sweep", "quickstart"],
    ["whatif", "quickstart", "--goal", "energy"],
    ["verify", "edp"],
    ["calibrate", "this-machine"],
    ["bench", "collective", "--op", "barrier", "--topology", "smolcluster"],
)


@pytest.mark.parametrize("words", NEED_TORCH, ids=lambda words: words[0])
def test_without_torch_a_command_that_needs_it_says_how_to_install_it(
    words: list[str], without_torch: dict[str, str], tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "simcluster", *words], cwd=tmp_path, env=without_torch, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {NO_TORCH}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["without"]


@pytest.mark.slow
def test_without_torch_the_rest_works_and_doctor_says_what_is_missing(
    without_torch: dict[str, str], tmp_path: Path
) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, *words], cwd=tmp_path, env=without_torch, capture_output=True, text=True)

    for words in (["new", "project"], ["schema", "topology"], ["topology", "check", "smolcluster"], ["list", "links"]):
        done = run("-m", "simcluster", *words)
        assert (done.returncode, done.stderr) == (0, ""), words
    done = run("-m", "simcluster", "doctor")
    assert done.returncode == 1
    assert re.search(r"^missing +torch +not installed$", done.stdout, flags=re.MULTILINE)
    assert "torch: pip install torch" in done.stdout
    done = run("-c", "import simcluster; simcluster.run('quickstart')")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"ModuleNotFoundError: {NO_TORCH}"
