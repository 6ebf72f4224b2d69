"""A server that only serves: without workers there is no run, and with late ones there is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import simcluster
from simcluster.errors import PeerLost
from tests.backends.sockets.launcher.test_late_comers import experiment

ROUNDS = {"easgd": {"interval": 2}, "fedbuff": {"interval": 2}, "async_diloco": {"interval": 2}}
SERVERS = ["sync_ps", "k_sync", "ssp", "softsync", "k_async", "edp", *ROUNDS]
MIDDLE = "10 ms"
"""Twelve steps take 19 to 26 ms."""


def run(name: str, folder: Path, *faults: dict[str, Any]) -> simcluster.Run:
    algorithm = {"name": name, "server_trains": False, **ROUNDS.get(name, {})}
    plan = experiment(3, algorithm, 12, *faults)
    for link in plan["topology"]["links"]:
        link["bandwidth"] = "10 Mbps"
    return simcluster.run(plan, out=folder, report=False, options={"dead_s": 0.02})


@pytest.mark.parametrize("name", SERVERS)
def test_it_fails_when_it_has_lost_all_workers_before_any_had_ended(name: str, tmp_path: Path) -> None:
    with pytest.raises(PeerLost):
        run(name, tmp_path, {"kind": "partition", "groups": [["n0"], ["n1", "n2"]], "at": MIDDLE})


@pytest.mark.parametrize("name", ["sync_ps", "ssp", "edp", "fedbuff"])
def test_it_waits_for_workers_that_all_join_late(name: str, tmp_path: Path) -> None:
    summary = run(name, tmp_path, *({"kind": "join", "node": node, "at": MIDDLE} for node in ("n1", "n2"))).summary
    assert summary["status"] == "done"
    assert "lost" not in summary
    assert summary["steps"] >= 12


def test_it_is_done_when_one_worker_is_and_the_other_is_lost(tmp_path: Path) -> None:
    summary = run("async_diloco", tmp_path, {"kind": "crash", "node": "n1", "at": MIDDLE}).summary
    assert summary["status"] == "done"
    assert list(summary["lost"]) == ["n1"]
