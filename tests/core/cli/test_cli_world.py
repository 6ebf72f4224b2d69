"""The command where the world is unkind: closed streams, readers that leave, full disks, folders without reports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from simcluster.results import load_run
from tests.core.runs.test_folder import no_file_above

SHORT = ("--set", "stop.steps=3", "--no-report")


def in_a_shell(words: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the command as *words*, a line of sh in which "$@" stands for it."""
    full = ["sh", "-c", words, "sh", sys.executable, "-m", "simcluster", *arguments]
    return subprocess.run(full, capture_output=True, text=True)


@pytest.mark.slow
def test_a_run_whose_standard_streams_are_closed_goes_on(tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    done = in_a_shell('"$@" <&- >&- 2>&-', "run", "quickstart", *SHORT, "--backend", "sockets", "--out", out)
    assert done.returncode == 0
    assert load_run(out).summary["status"] == "done"


@pytest.mark.slow
def test_a_reader_that_leaves_early_is_no_traceback() -> None:
    done = in_a_shell('"$@" | head -n 1', "list", "--json")
    assert (done.returncode, done.stdout, done.stderr) == (0, "{\n", "")


def test_a_full_disk_ends_a_run_with_its_seed_and_folder_also_with_json(command: Any) -> None:
    asked = ("run", "quickstart", *SHORT, "--seed", "5", "--out", "run", "--json")
    with no_file_above(500):
        code, out, err = command(*asked)
    assert (code, out) == (1, "")
    assert err.startswith("error: FolderError: cannot write config.yaml into the run folder: ")
    assert err.endswith("seed: 5\nrun folder: run\n")


def test_a_full_disk_leaves_no_half_key_and_no_half_drawing(command: Any, tmp_path: Path) -> None:
    for request in (("key", "cluster.key"), ("topology", "draw", "smolcluster")):
        with no_file_above(10):
            code, _, err = command(*request)
        assert code == 2
        assert "File too large" in err
    assert list(tmp_path.iterdir()) == []
    assert command("key", "cluster.key")[0] == 0


@pytest.mark.slow
def test_a_comparison_names_only_the_reports_there_are(command: Any) -> None:
    for name in "ab":
        command("run", "quickstart", *SHORT, "--out", name)
    code, out, _ = command("compare", "a", "b")
    assert code == 0
    assert "report" not in out
    assert command("report", "b")[:2] == (0, f"{Path('b', 'report.html')}\n")
    out = command("compare", "a", "b")[1]
    assert out.endswith(f"reports:\n  {Path('b', 'report.html')}\n")
    assert len(json.loads(command("compare", "a", "b", "--json")[1])) == 1


def test_a_backend_that_there_is_not_is_told_before_anything_is_measured(command: Any, tmp_path: Path) -> None:
    code, _, err = command("calibrate", "smolcluster", "--backend", "socket")
    assert (code, err) == (2, "error: --backend: found 'socket', expected a backend: did you mean 'sockets'?\n")
    assert list(tmp_path.iterdir()) == []
