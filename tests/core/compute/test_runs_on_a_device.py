"""Whole runs whose replicas are on a device, against the same runs on the CPU: settings of algorithms, checkpoints,
groups that lost a rank, evaluations and what is observed.

They are simulated, since then nothing depends on arrival; the simulator itself would compute on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from simcluster.runs.record import RunRecord
from tests.core.checkpoints.test_resume import EXACT, LOOSE, mesh
from tests.core.regroup.test_regroup import star as slow_star
from tests.support.kept import config, hashes, play, play_on
from tests.support.levels import sample_of
from tests.support.stand_in import counted

GPT = {"name": "gpt", "layers": 2, "width": 8, "heads": 2, "context": 4, "batch_size": 4, "clip_norm": 0.5}


@contextmanager
def away(device: torch.device) -> Iterator[None]:
    """Every node computes on *device*."""
    with pytest.MonkeyPatch.context() as patch, counted() as copies:
        patch.setattr("simcluster.experiment.node._device", lambda experiment, name: device)
        yield
    assert copies.up


def measured(record: RunRecord) -> list[Any]:
    """All numbers of a run, whose times are the simulator's."""
    return [(node.metrics, node.copies, node.digest, node.weights_sha256) for node in record.nodes]


def check_same(host: RunRecord, there: RunRecord, device: torch.device) -> None:
    assert hashes(there) == hashes(host)
    assert measured(there) == measured(host)
    for node in there.nodes:
        assert node.numerics is not None
        assert node.numerics["device"] == str(device)


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "settings"), sample_of([*EXACT, *LOOSE]))
def test_kept_and_resumed_there_it_is_the_run_of_the_cpu(
    algorithm: str, settings: dict[str, Any], stand_in: torch.device, tmp_path: Path
) -> None:
    experiment, keep = config(algorithm, steps=4, **settings), {"checkpoint": {"every": 2, "keep": 9}}
    if algorithm in ("all_reduce_dp", "diloco"):
        keep["checkpoint"]["best"] = "loss"
    host, resumed = play(experiment, tmp_path / "host", keep), play_on(tmp_path / "host", 2)
    with away(stand_in):
        check_same(host, play(experiment, tmp_path / "there", keep), stand_in)
        check_same(resumed, play_on(tmp_path / "there", 2), stand_in)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["pipeline", "tensor_parallel", "zero"])
@pytest.mark.parametrize("workload", [GPT, {"name": "mnist_mlp", "hidden": 8, "batch_size": 4}], ids=["gpt", "mlp"])
def test_a_model_in_parts_is_one_there_too(
    algorithm: str, workload: dict[str, Any], stand_in: torch.device, tmp_path: Path
) -> None:
    experiment = config(algorithm, workload, steps=4) | {"topology": mesh(2)}
    if algorithm == "zero":
        experiment["algorithm"]["stage"] = 3
    host = play(experiment, tmp_path / "host", {"checkpoint": {"every": 2}})
    with away(stand_in):
        check_same(host, play(experiment, tmp_path / "there", {"checkpoint": {"every": 2}}), stand_in)
        assert hashes(play_on(tmp_path / "there", 2)) == hashes(host)


@pytest.mark.parametrize("algorithm", ["all_reduce_dp", "demo", "diloco"])
def test_a_group_that_lost_a_rank_goes_on_there(algorithm: str, stand_in: torch.device, tmp_path: Path) -> None:
    lost = {"kind": "crash", "node": "n2", "at": "30 ms"}  # a step takes about 10 ms
    experiment = config(algorithm, steps=8) | {"topology": slow_star(3), "faults": [lost]}
    host = play(experiment, tmp_path / "host")
    assert any(node.regroups for node in host.nodes)
    with away(stand_in):
        check_same(host, play(experiment, tmp_path / "there"), stand_in)


def test_what_is_observed_is_read_from_there(stand_in: torch.device, tmp_path: Path) -> None:
    observe = {"gradient_norms": "layers", "learning_rate": True}
    experiment = config("d_psgd", steps=4) | {"evaluate_consensus": True, "evaluate_every": 2, "observe": observe}
    host = play(experiment, tmp_path / "host")
    assert any(metric.name.startswith("observed_gradient_norm") for metric in host.nodes[1].metrics)
    assert host.nodes[1].copies
    with away(stand_in):
        check_same(host, play(experiment, tmp_path / "there"), stand_in)


def test_a_checkpoint_of_there_is_resumed_on_the_cpu(stand_in: torch.device, tmp_path: Path) -> None:
    experiment = config("diloco", steps=4, interval=2, compression="int8")
    whole = play(experiment, tmp_path / "host", {"checkpoint": {"every": 2}})
    with away(stand_in):
        play(experiment, tmp_path / "there", {"checkpoint": {"every": 2}})
    assert hashes(play_on(tmp_path / "there", 2)) == hashes(whole)
