"""A node that comes when the others have ended, or are about to: it is lost, and never the run's failure or result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import simcluster
from simcluster.results import Run
from simcluster.topology import star


def experiment(workers: int, algorithm: str | dict[str, Any], steps: int, *faults: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "late",
        "topology": star(workers, device="raspberry-pi-4", bandwidth="1 Mbps", latency="100 us").document,
        "algorithm": algorithm,
        "workload": {"name": "quadratic", "batch_size": 1},
        "stop": {"steps": steps},
        "faults": list(faults),
    }


def run(plan: dict[str, Any], folder: Path, backend: str = "sim") -> Run:
    return simcluster.run(plan, out=folder, backend=backend, report=False)


def test_a_rank_0_that_joined_too_late_does_not_stand_for_the_run(tmp_path: Path) -> None:
    plan = experiment(2, "diloco", 1, {"kind": "join", "node": "n0", "at": "0.1 s"})
    plan["stop"] = {"steps": 1, "time": "0.5 s"}
    summary = run(plan, tmp_path).summary
    assert summary["lost"] == {"n0": "joined too late"}
    assert summary["weights_sha256"] == summary["nodes"]["n1"]["weights_sha256"]
    assert summary["weights_sha256"] != summary["nodes"]["n0"]["weights_sha256"]
    assert summary["loss"] is not None


def test_a_late_comer_that_misses_a_crashed_node_does_not_fail_the_run(tmp_path: Path) -> None:
    crash = {"kind": "crash", "node": "n2", "at": "20 ms"}
    restart = {"kind": "restart", "node": "n0", "at": "20 ms", "after": "4 ms"}
    plan = experiment(3, {"name": "local_sgd", "interval": 2}, 3, crash, restart)
    plan["topology"]["nodes"]["n2"] = {"flops": "1 GFLOP/s", "work_overhead": "2 ms"}
    plan["workload"]["batch_size"] = 8
    summary = run(plan, tmp_path).summary
    assert summary["status"] == "done"
    assert set(summary["lost"]) == {"n0", "n2"}


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["sim", "sockets"])
def test_a_cohort_of_late_workers_alone_makes_all_rounds(backend: str, tmp_path: Path) -> None:
    late = {"kind": "join", "node": "n1", "at": "0.3 s"}
    cohort = {"name": "fedbuff", "interval": 2, "concurrency": 1, "server_trains": False}
    made = run(experiment(2, cohort, 6, late), tmp_path / "run", backend)
    assert "lost" not in made.summary
    assert made.metrics[made.metrics["name"] == "applied"]["value"].max() == 3.0, "a round per two steps"
