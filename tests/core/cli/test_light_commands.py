"""Commands that need no torch do not import it, nor what else takes long to import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import simcluster

HEAVY = ("torch", "pandas", "pyarrow", "plotly")


def imported_by(*arguments: str) -> list[str]:
    """Return what the command of *arguments* imports of HEAVY, as Python reports it."""
    command = [sys.executable, "-X", "importtime", "-m", "simcluster", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "simcluster.cli.app" in modules
    return [name for name in HEAVY if name in modules]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", ["run --help", "list", "topology check smolcluster", "schema experiment"])
def test_a_command_about_names_and_topologies_imports_nothing_heavy(arguments: str) -> None:
    assert imported_by(*arguments.split()) == []


@pytest.mark.slow
def test_flows_are_timed_without_torch_also_where_they_draw_and_stall(tmp_path: Path) -> None:
    link = {"between": ["a", "b"], "bandwidth": "1 MB/s", "latency": "1 ms", "jitter": "0.1 ms", "loss": 0.01}
    ends = {name: {"kind": "host"} for name in "ab"}
    (tmp_path / "two.yaml").write_text(json.dumps({"name": "two", "nodes": ends, "links": [link]}))
    (tmp_path / "flows.json").write_text(json.dumps([{"src": "a", "dst": "b", "bytes": 1e6}]))
    files = ["--topology", str(tmp_path / "two.yaml"), "--flows", str(tmp_path / "flows.json")]
    assert imported_by("flows", *files) == []


@pytest.mark.slow
def test_a_report_is_written_again_without_torch_and_pandas(tmp_path: Path) -> None:
    simcluster.run("quickstart", overrides={"stop.steps": 2}, out=tmp_path / "run", report=False)
    assert imported_by("report", str(tmp_path / "run")) == ["pyarrow", "plotly"]
    assert (tmp_path / "run" / "report.html").is_file()


@pytest.mark.slow
def test_a_run_that_is_only_timed_has_a_report_without_curves_and_without_what_draws_them(tmp_path: Path) -> None:
    short = ("--set", "stop.steps=2", "--set", "numerics=none", "--out", str(tmp_path / "run"))
    assert imported_by("run", "quickstart", *short) == ["torch", "pyarrow"]
    assert (tmp_path / "run" / "report.html").is_file()
