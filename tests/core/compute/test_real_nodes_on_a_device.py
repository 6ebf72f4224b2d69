"""Real nodes, in processes, on a device of their machine: the weights of the simulator, and what the run tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import simcluster
from simcluster.errors import NotReplayable, UsageError
from simcluster.lab.calibrate import calibrate
from simcluster.lab.replays.run import replay
from simcluster.runs.comparison.compare import RunPair
from tests.support.levels import sample_of
from tests.support.root import ROOT


def experiment(*compute: str) -> dict[str, Any]:
    nodes = {f"n{rank}": {"device": "x86-laptop", "compute": one} for rank, one in enumerate(compute)}
    links = [{"between": [name, "sw"], "type": "ethernet-1g"} for name in nodes]
    return {
        "name": "on a device",
        "topology": {"name": "star", "nodes": {**nodes, "sw": {"kind": "switch"}}, "links": links},
        "algorithm": {"name": "all_reduce_dp"},
        "workload": {"path": f"{ROOT}/tests/support/on_stand_in.py:make_workload"},
        "stop": {"steps": 6},
        "evaluate_every": 3,
        "seed": 5,
    }


def devices(run: Any) -> list[str]:
    return [node["numerics"]["device"] for node in run.summary["nodes"].values()]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["sockets", "torch"])
def test_they_end_with_the_weights_of_the_simulator(backend: str, stand_in: torch.device, tmp_path: Path) -> None:
    source = experiment("auto", "cpu") | ({"checkpoint": {"every": 3}} if backend == "sockets" else {})
    simulated = simcluster.run(source, out=tmp_path / "sim", report=False)
    real = simcluster.run(source, backend=backend, out=tmp_path / "real", report=False)
    assert devices(simulated) == ["cpu", "cpu"]
    assert devices(real) == ["stand_in:0", "cpu"]
    for key in ("weights_sha256", "bytes_sent", "messages_sent", "steps", "loss", "accuracy"):
        assert simulated.summary[key] == real.summary[key], key
    if backend == "sockets":
        assert real.summary["checkpoints"]["written"] > 0
        with pytest.raises(NotReplayable, match="n0 on stand_in:0"):
            replay(tmp_path / "real", out=tmp_path / "replay")


@pytest.mark.parametrize(("change", "is_within"), [(1e-5, True), (1e-1, False)])
def test_unlike_devices_are_judged_by_the_tolerance(
    change: float, is_within: bool, stand_in: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = simcluster.run(experiment("cpu", "cpu"), out=tmp_path / "host", report=False)
    monkeypatch.setattr("simcluster.experiment.node._device", lambda plan, name: stand_in)
    monkeypatch.setattr("tests.support.stand_in.ROUNDS_BY", change)
    there = simcluster.run(experiment("cpu", "cpu"), out=tmp_path / "there", report=False)
    judged = RunPair(host, there).kernels
    assert judged is not None
    assert [(one.node, one.key, one.a, one.b) for one in judged.found] == [
        (f"n{rank}", "device", "cpu", "stand_in:0") for rank in range(2)
    ]
    assert judged.difference is not None
    assert judged.difference > 0
    assert judged.within is is_within


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", sample_of(["all_reduce_dp", "sync_ps", "d_psgd", "zero"]))
def test_tensors_travel_from_device_to_device_with_the_weights_and_counts_of_the_simulator(
    algorithm: str, stand_in: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    monkeypatch.setenv("STRICT_PAIR_SEEN", str(seen))
    source = experiment("auto", "auto", "auto") | {"algorithm": {"name": algorithm}}
    simulated = simcluster.run(source, out=tmp_path / "sim", report=False)
    real = simcluster.run(source, backend="torch", out=tmp_path / "real", report=False)
    assert devices(real) == ["stand_in:0"] * 3
    assert len(seen.read_text().splitlines()) > 6
    for key in ("weights_sha256", "bytes_sent", "messages_sent", "steps", "loss", "accuracy"):
        assert simulated.summary[key] == real.summary[key], key


@pytest.mark.slow
@pytest.mark.parametrize(("second", "options"), [("cpu", {}), ("auto", {"nccl": False})])
def test_they_travel_through_the_host_if_a_rank_has_no_device_or_none_is_wanted(
    second: str, options: dict[str, Any], stand_in: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRICT_PAIR_SEEN", str(tmp_path / "seen"))
    simcluster.run(experiment("auto", second), backend="torch", options=options, out=tmp_path / "run", report=False)
    assert not (tmp_path / "seen").exists()


def test_an_absent_device_ends_the_run_with_those_that_are_there(stand_in: torch.device, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nodes\.n1\.compute: found 'cuda' on this machine, expected cpu or auto"):
        simcluster.run(experiment("cpu", "cuda"), backend="sockets", out=tmp_path / "run", report=False)


@pytest.mark.slow
def test_a_calibration_measures_the_device_that_computes(stand_in: torch.device) -> None:
    source = experiment("auto", "cpu")
    found = calibrate(source["topology"], workload=source["workload"])
    assert {name: node.accelerator for name, node in found.nodes.items()} == {"n0": "stand_in", "n1": ""}
