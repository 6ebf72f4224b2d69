"""Parameter servers on real nodes, where cancelled work goes on: nothing is lost, nobody hangs, weights agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import simcluster
from simcluster.results import Run
from tests.support.levels import sample_of

SETTINGS: list[dict[str, Any]] = [
    {"name": "sync_ps", "wait_for": 2, "cancel_late": True},
    {"name": "sync_ps", "wait_for": 1, "server_trains": False},
    {"name": "k_sync", "k": 2},
    {"name": "k_sync", "k": 4, "batch": True, "server_trains": False},
    {"name": "k_async", "k": 2},
    {"name": "edp", "push": "weights", "pull_interval": 3},
]
STEPS = 25


def run(algorithm: dict[str, Any], folder: Path, **keys: Any) -> Run:
    return simcluster.run(
        {
            "name": "served",
            "topology": {"generator": "star", "workers": 3},
            "algorithm": algorithm,
            "workload": {"name": "mnist_mlp", "hidden": 32, "batch_size": 64},
            "stop": {"steps": STEPS},
            "backend": "sockets",
            **keys,
        },
        out=folder,
        report=False,
    )


def last(done: Run, name: str) -> dict[str, int]:
    """By node, the last of the counts called *name*."""
    rows = done.metrics[done.metrics.name == name]
    return {str(node): int(of_node.value.iloc[-1]) for node, of_node in rows.groupby("node")}


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", sample_of(SETTINGS, 2), ids=str)
def test_every_push_is_accounted_for_on_real_nodes(algorithm: dict[str, Any], tmp_path: Path) -> None:
    done = run(algorithm, tmp_path / "run")
    assert done.summary["status"] == "done"
    applied, rejected = last(done, "applied")["n0"], last(done, "rejected").get("n0", 0)
    assert sum(last(done, "pushed").values()) == applied + rejected
    assert done.summary["loss"] < 2.3, "ten classes by guessing: ln 10"
    if algorithm["name"] in ("sync_ps", "k_sync"):
        assert applied == STEPS * algorithm.get("k", algorithm.get("wait_for"))
        assert len({node["weights_sha256"] for node in done.summary["nodes"].values()}) == 1
