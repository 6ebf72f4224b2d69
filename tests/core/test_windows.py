"""On Windows the library loads and answers questions; parts that need a Unix refuse before anything starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from simcluster_backends import sockets, torch

import simcluster
from simcluster.errors import UsageError
from simcluster.job import ClusterJob

WITHOUT_UNIX = """
import builtins, json
from pathlib import Path

missing = {"fcntl", "resource", "pwd", "grp", "termios"}
real, asked = builtins.__import__, []

def importing(name, globals=None, locals=None, fromlist=(), level=0):
    who = (globals or {}).get("__name__", "")
    if name in missing and who.startswith("simcluster"):
        asked.append(f"{who} imports {name}")
        raise ModuleNotFoundError(asked[-1])
    return real(name, globals, locals, fromlist, level)

builtins.__import__ = importing
import simcluster, simcluster.cli.app
from simcluster_backends.sockets.launcher import launcher, settings  # which refuse later, in words

run = simcluster.run(
    topology="smolcluster", algorithm="sync_ps", workload="quadratic", stop={"steps": 2}, report=False, out="run"
)
print(json.dumps([run.summary["steps"], asked]))
"""


@pytest.mark.slow
def test_a_simulation_imports_nothing_that_only_a_unix_has(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_UNIX], cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[2, []]\n", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("node", "a", "--join", "127.0.0.1:1", "--key-file", "key"), "a node"),
        (("node", "a", "--launched"), "a node"),
        (("run", "quickstart", "--backend", "sockets"), "a run folder"),
        (("calibrate", "smolcluster"), "real nodes"),
        (("run", "quickstart", "--backend", "sim"), "a run folder"),
        (("run", "quickstart", "--backend", "torch"), "a run folder"),
        (("sweep", "quickstart", "--set", "seed=1,2"), "a run folder"),
        (("whatif", "quickstart", "--goal", "step-time"), "a run folder"),
        (("verify", "sync_ps", "--quick"), "real nodes"),
        (("bench", "transport", "--nodes", "2"), "real nodes"),
        (("doctor", "smolcluster"), "nodes"),
    ],
)
def test_what_needs_a_unix_is_refused_with_the_reason_before_anything_is_written(
    arguments: tuple[str, ...], part: str, command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    code, out, said = command(*arguments)
    reason = "it needs their signals, process groups and file descriptors"
    assert (code, out, said) == (2, "", f"error: {part}: found Windows, expected Linux, macOS or WSL: {reason}\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments", [("compare", "run", "run"), ("report", "run"), ("replay", "run"), ("resume", "run")], ids=" ".join
)
def test_a_run_folder_of_another_machine_is_refused_in_the_same_words(
    arguments: tuple[str, ...], command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, where = {"steps": 2}, tmp_path / "run"
    simcluster.run(
        topology="smolcluster", algorithm="sync_ps", workload="quadratic", stop=stop, report=False, out=where
    )
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(sys, "platform", "win32")
    code, out, said = command(arguments[0], *(str(tmp_path / name) for name in arguments[1:]))
    assert (code, out) == (2, "")
    assert said.startswith("error: a run folder: found Windows, expected Linux, macOS or WSL")
    assert sorted(tmp_path.rglob("*")) == before


def test_questions_that_write_no_folder_are_answered(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    code, out, _ = command("bench", "collective", "--op", "all_reduce", "--topology", "smolcluster", "--json")
    assert (code, '"elapsed_s"' in out) == (0, True)


@pytest.mark.parametrize("backend", [sockets, torch])
def test_no_backend_of_real_processes_starts_there(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(UsageError, match="real nodes: found Windows, expected Linux, macOS or WSL"):
        backend.run_cluster(ClusterJob(["a"], "{}"))
