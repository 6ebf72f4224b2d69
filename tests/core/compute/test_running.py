"""Running statistics travel with an algorithm's messages: exact means, equal bits, bytes that are counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

import simcluster
from simcluster.compute.running import weighted_mean
from simcluster.lab.verify import running_mean
from simcluster.results import Run
from simcluster.topology import star
from tests.core.workloads.replicas import normalised, replica_of
from tests.support.levels import sample_of

STATISTICS = {"path": f"{running_mean.__file__}:running_mean"}
MEANS = [running_mean.MEAN + running_mean.SPREAD * place for place in (-2 / 3, 0, 2 / 3)]
"""About the means of three ranks' samples."""


def run(folder: Path, algorithm: str, workload: Any = STATISTICS, **keys: Any) -> Run:
    name, *settings = algorithm.split(",")
    given = {key: yaml.safe_load(value.replace(";", ",")) for key, value in (one.split("=") for one in settings)}
    device = {"flops": "1 PFLOP/s", "work_overhead": "1 ms"}
    topology = star(keys.pop("size", 3), device=device, bandwidth="1 Gbps", latency="50 us").document
    keys = {"stop": {"steps": 60}, "out": folder, "report": False, **keys}
    return simcluster.run(topology=topology, algorithm={"name": name, **given}, workload=workload, **keys)


def distance(done: Run) -> float:
    """Return how far the running mean at rank 0 is from the mean of all samples."""
    return float(done.summary["loss"]) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm",
    ["sync_ps", "sync_ps,server_trains=false", "k_sync", "all_reduce_dp", "all_reduce_dp,compression=int8", "zero"],
)
def test_lockstep_ends_with_the_mean_of_all_ranks(algorithm: str, tmp_path: Path) -> None:
    away = 0.0 if "server_trains" not in algorithm else running_mean.SPREAD / 3  # the server's samples are not drawn
    found = distance(run(tmp_path / "run", algorithm))
    assert found == pytest.approx(away, abs=0.9), MEANS  # of 60 steps, and batches of 4


@pytest.mark.parametrize("algorithm", ["edp,server_trains=false", "fedbuff,server_trains=false", "async_diloco"])
def test_a_server_takes_the_statistics_of_its_workers(algorithm: str, tmp_path: Path) -> None:
    assert distance(run(tmp_path / "run", algorithm)) < running_mean.SPREAD * 0.5


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["sync_ps", "all_reduce_dp", "d_psgd"])
def test_real_nodes_end_with_the_simulators_statistics_and_bytes(algorithm: str, tmp_path: Path) -> None:
    sim, sockets = (
        run(tmp_path / backend, algorithm, backend=backend, stop={"steps": 5}, size=2).summary
        for backend in ("sim", "sockets")
    )
    assert sockets["loss"] == sim["loss"]
    assert sockets["bytes_sent"] == sim["bytes_sent"]
    assert sockets["messages_sent"] == sim["messages_sent"]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", sample_of(["sync_ps", "all_reduce_dp", "edp", "d_psgd", "diloco", "pipeline"], 2))
def test_a_run_for_timing_sends_the_same_bytes_in_the_same_time(algorithm: str, tmp_path: Path) -> None:
    real, timed = (
        run(tmp_path / numerics, algorithm, numerics=numerics, stop={"steps": 3}, size=2).summary
        for numerics in ("real", "none")
    )
    assert timed["bytes_sent"] == real["bytes_sent"]
    assert timed["elapsed_s"] == real["elapsed_s"]


@pytest.mark.slow
def test_a_resumed_run_ends_with_the_statistics_of_one_that_was_not_interrupted(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", "sync_ps,pull_interval=2", stop={"steps": 8}, checkpoint={"every": 4})
    first = run(tmp_path / "first", "sync_ps,pull_interval=2", stop={"steps": 8}, checkpoint={"every": 4, "keep": 9})
    resumed = simcluster.resume(first, step=4, out=tmp_path / "resumed")
    assert resumed.summary["loss"] == whole.summary["loss"]


def test_the_stages_of_a_pipeline_hand_theirs_to_rank_0(tmp_path: Path) -> None:
    assert distance(run(tmp_path / "run", "pipeline,order=[1;0]", size=2)) < 5.0  # of 100 where they stay


def test_buffers_that_training_does_not_change_do_not_travel() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mask", torch.full((6,), 0.5))
            self.norm, self.out = nn.BatchNorm1d(6), nn.Linear(6, 3)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.out(self.norm(inputs * self.mask))

    assert replica_of(Masked).running == ["norm.running_mean", "norm.running_var"]
    assert replica_of(normalised).running == ["1.running_mean", "1.running_var"]
    assert replica_of().running == []
    frozen = nn.Sequential(nn.BatchNorm1d(6, track_running_stats=False), nn.Linear(6, 3))
    assert replica_of(lambda: frozen).running == []


def test_a_mean_weighs_parts() -> None:
    (found,) = weighted_mean([[torch.tensor([1.0])], [torch.tensor([4.0])]], [1, 2])
    assert found.item() == 3.0
