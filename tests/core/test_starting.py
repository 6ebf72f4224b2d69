"""Nodes and workers are forks where a fork is safe, and fresh interpreters elsewhere; the bits are the same."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from simcluster_backends.sockets import run_cluster

import simcluster
from simcluster.errors import UsageError
from simcluster.process.starting import VARIABLE, way_to_start
from tests.support.socket_runs import Running, gone, job, pids_in, wait_for

SMALL: dict[str, Any] = {"topology": "smolcluster", "algorithm": "sync_ps", "workload": "quadratic"}


@pytest.mark.parametrize(
    ("platform", "environment", "cuda", "way"),
    [
        ("linux", {}, False, "fork"),
        ("linux", {VARIABLE: ""}, False, "fork"),
        ("linux", {VARIABLE: "spawn"}, False, "spawn"),
        ("linux", {}, True, "spawn"),
        ("darwin", {}, False, "spawn"),
        ("win32", {}, False, "spawn"),
    ],
)
def test_a_fork_is_made_only_where_it_is_safe(
    platform: str, environment: dict[str, str], cuda: bool, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: cuda)
    assert way_to_start(environment) == way


def test_another_way_than_spawn_cannot_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "thread")
    with pytest.raises(UsageError, match=r"SIMCLUSTER_START: found 'thread', expected spawn"):
        run_cluster(job("ring", "ab"))


@pytest.mark.slow
@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_a_node_is_a_fork_or_a_fresh_interpreter_and_ends_when_killed(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "spawn" if way == "spawn" else "")
    running = Running(job("goes_on_when_told", "abc", folder=tmp_path, log_folder=tmp_path / "logs"))
    pids = pids_in(tmp_path, "abc")
    nodes = [psutil.Process(pid) for pid in pids.values()]
    (server,) = {node.ppid() for node in nodes}
    # A fork has the command line of the process that it is a copy of.
    assert [node.cmdline() == psutil.Process(server).cmdline() for node in nodes] == [way == "fork"] * 3
    assert all(os.getpgid(pid) == pid for pid in pids.values())
    assert not any("key" in word for node in nodes for word in node.cmdline())
    os.kill(pids["c"], signal.SIGKILL)
    (tmp_path / "go").touch()
    assert running.result().extra["lost"].keys() == {"c"}
    wait_for(lambda: all(gone(pid) for pid in pids.values()))


@pytest.mark.exhaustive
def test_spawned_nodes_end_with_the_bits_of_forked_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = []
    for way in ("", "spawn"):
        monkeypatch.setenv(VARIABLE, way)
        run = simcluster.run(**SMALL, stop={"steps": 3}, backend="sockets", out=tmp_path / f"run{way}", report=False)
        digests.append(run.summary["weights_sha256"])
    simulated = simcluster.run(**SMALL, stop={"steps": 3}, out=tmp_path / "sim", report=False)
    assert digests == [simulated.summary["weights_sha256"]] * 2


@pytest.mark.exhaustive
def test_a_sweep_by_spawned_workers_has_the_same_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"algorithm.pull_interval": [1, 2]}
    tables = []
    for way in ("", "spawn"):
        monkeypatch.setenv(VARIABLE, way)
        sweep = simcluster.sweep(
            {**SMALL, "stop": {"steps": 3}}, values, out=tmp_path / f"s{way}", jobs=2, report=False
        )
        tables.append((sweep.folder / "table.csv").read_bytes())
    assert tables[0] == tables[1]
