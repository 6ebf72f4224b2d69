"""A rank that comes back to others that do not expect it trains alone: no checkpoint has a part of that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import simcluster
from simcluster.checkpoints.gather import Gather
from simcluster.checkpoints.shard import Shard
from simcluster.checkpoints.store import Store
from simcluster.errors import PeerLost
from simcluster.topology import Topology

LINE = Topology.chain(3, bandwidth="1 Mbps", latency="1 ms", device="raspberry-pi-4")
MEAN: dict[str, dict[str, Any]] = {
    "choco_sgd": {"compression": "int8"},
    "d_psgd": {},
    "gradient_tracking": {},
    "sgp": {},
}


def run(out: Path, algorithm: dict[str, Any], faults: list[dict[str, Any]]) -> simcluster.Run:
    return simcluster.run(
        topology=LINE,
        algorithm=algorithm,
        workload={"name": "quadratic", "features": 2, "samples": 64, "batch_size": 1},
        stop={"steps": 8},
        checkpoint={"every": 1},
        faults=faults,
        options={"max_restarts": 1},
        out=out,
        report=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", MEAN)
def test_a_run_restored_after_a_rank_came_back_has_the_weights_of_an_undisturbed_one(name: str, tmp_path: Path) -> None:
    algorithm = {"name": name, "output": "mean", **MEAN[name]}
    whole = run(tmp_path / "whole", algorithm, [])
    elapsed_s = whole.summary["elapsed_s"]
    for number, share in enumerate((0.3, 0.55, 0.7)):
        fault = {"kind": "restart", "node": "n2", "at": f"{share * elapsed_s} s", "after": f"{0.1 * elapsed_s} s"}
        found = run(tmp_path / str(number), algorithm, [fault])
        assert len(found.summary["restarts"]) == 1
        assert found.summary["weights_sha256"] == whole.summary["weights_sha256"]


def shard(rank: int, step: int, incarnation: int = 0, *, loose: bool = False) -> Shard:
    return Shard(rank, step, step, float(step), loose, f"{rank}/{step}/{incarnation}", {}, incarnation=incarnation)


@pytest.mark.parametrize(
    ("admits", "rank", "loose", "written"),
    [
        (False, 1, False, [1]),  # nothing of its second life
        (True, 1, False, [1, 2]),  # a worker has the weights of its server
        (True, 0, False, [1]),  # a server that came back has nothing
        (True, 0, True, [1]),
        (False, 1, True, [1, 2]),  # out of step: each has its latest
    ],
)
def test_whose_later_life_is_in_a_checkpoint(
    admits: bool, rank: int, loose: bool, written: list[int], tmp_path: Path
) -> None:
    gather = Gather(Store(tmp_path, "run"), {}, 2, admits=admits)
    for each in (1, 0):
        gather.add(shard(each, 1, loose=loose))
    for each in (1, 0):
        gather.add(shard(each, 2, int(each == rank), loose=loose))
    assert gather.written == written


def test_a_rank_that_came_back_alone_stays_in_the_checkpoints_as_it_was_lost(tmp_path: Path) -> None:
    store = Store(tmp_path, "run")
    gather = Gather(store, {}, 2, spared=range(2))
    for step in (1, 2, 3):
        gather.add(shard(0, step), lost={1} if step == 2 else ())
        gather.add(shard(1, step, int(step > 1)))
    assert gather.written == [1, 3]
    assert '"1/1/0"' in (tmp_path / "step-00000003.json").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["edp", "softsync"])
@pytest.mark.parametrize("back", ["alone", "with a worker"])
def test_a_run_whose_server_began_again_without_its_model_fails(name: str, back: str, tmp_path: Path) -> None:
    faults: list[dict[str, Any]] = [
        {"kind": "join", "node": "n1", "at": "1 ms"},
        {"kind": "restart", "node": "n0", "at": "50 ms", "after": "15 ms"},
    ]
    if back == "with a worker":
        faults.append({"kind": "restart", "node": "n1", "at": "50 ms", "after": "10 ms"})
    found: dict[str, Any] = {
        "topology": Topology.chain(2, bandwidth="10 Mbps", latency="5 ms", device="raspberry-pi-4"),
        "algorithm": name, "workload": {"name": "quadratic", "batch_size": 8}, "stop": {"steps": 12}, "report": False,
    }  # fmt: skip
    with pytest.raises(PeerLost, match=r"rank 0 \(n0\) is lost: the trained model was lost with its earlier"):
        simcluster.run(**found, faults=faults, out=tmp_path / "once")
    again = simcluster.run(**found, faults=faults, out=tmp_path / "again", options={"max_restarts": 1})
    assert again.summary["restarts"][0]["begins_again"] == "the start"
    assert again.summary["samples"]["lost"] == 0


def test_a_server_that_comes_back_without_its_model_is_lost_where_a_worker_has_the_result(tmp_path: Path) -> None:
    """It is gone from 13 to 13.07 ms; its worker would hear of that at 16 ms, and the time is up at 15 ms."""
    run = simcluster.run(
        topology=Topology.chain(2, bandwidth="1 Gbps", latency="3 ms", device="raspberry-pi-4"),
        algorithm="k_sync",
        workload={"name": "quadratic", "batch_size": 8},
        stop={"steps": 2, "time": "15 ms"},
        faults=[{"kind": "restart", "node": "n0", "at": "13 ms", "after": "70 us"}],
        out=tmp_path / "out",
        report=False,
    )
    assert run.summary["lost"] == {"n0": "it came back without what it had trained"}
    assert run.summary["weights_sha256"] == run.summary["nodes"]["n1"]["weights_sha256"]


def test_a_gossiping_rank_that_came_back_to_no_neighbour_has_no_model_of_the_run(tmp_path: Path) -> None:
    faults = [
        {"kind": "restart", "node": "n0", "at": "50 ms", "after": "15 ms"},
        {"kind": "crash", "node": "n1", "at": "55 ms"},
    ]
    with pytest.raises(PeerLost, match="the trained model was lost with its earlier incarnation"):
        simcluster.run(
            topology=Topology.chain(2, bandwidth="10 Mbps", latency="5 ms", device="raspberry-pi-4"),
            algorithm="d_psgd",
            workload={"name": "quadratic", "batch_size": 8},
            stop={"steps": 20},
            faults=faults,
            out=tmp_path / "out",
            report=False,
        )
