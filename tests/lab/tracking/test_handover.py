"""What trackers are handed of a run: its name, its parameters, its numbers, each once."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from simcluster.lab.tracking.handover import MAX_PARAMS, hand_over, name_of
from simcluster.runs.folder import FINAL_PATH
from tests.lab.tracking.tracked import run_of_500, small_run
from tests.support.made_up_runs import made_up_config


def test_a_run_is_named_and_its_configuration_is_flat(tmp_path: Path) -> None:
    found = hand_over(small_run(tmp_path), "big-sweep", ("algorithm.pull_interval", "topology.links.a-b.bandwidth"))
    assert found.name == "sync_ps-pair-b32-7"
    assert (found.experiment, found.place) == ("quickstart", "big-sweep")
    assert found.params["algorithm.name"] == "sync_ps"
    assert found.params["topology.nodes.a.device"] == "raspberry-pi-5"
    assert found.swept == {"algorithm.pull_interval": 1, "topology.links.a-b.bandwidth": "1 MB/s"}
    whole = hand_over(small_run(tmp_path), "big-sweep", ("algorithm", "topology")).swept
    assert list(whole) == ["algorithm.name", "algorithm.pull_interval", "topology.name"]
    assert found.summary["elapsed_s"] == 0.75
    assert found.summary["loss"] == 0.25
    assert "seed" not in found.summary, "it is a parameter"
    assert [path.name for path in found.files] == ["config.yaml", "summary.json"]


def test_every_number_is_there_once_a_step_with_its_mean_over_nodes(tmp_path: Path) -> None:
    found = {(value.name, value.step): value for value in hand_over(small_run(tmp_path)).values}
    # a notes 1 and b 3; a notes 4 and 6, and b nothing that is a number
    assert found["loss", 1].value == 2.0
    assert found["loss/a", 1].value == 1.0
    assert found["loss/a", 2].value == 5.0
    assert math.isnan(found["loss", 2].value)
    assert math.isnan(found["loss/b", 2].value)
    # at the time of the last of them
    assert found["loss", 1].time_s == 0.3
    assert found["loss/a", 1].time_s == 0.1
    assert found["time_s", 2].value == 0.6
    # of one node alone there is no mean
    assert found["eval_loss", 2].value == 0.25
    assert ("eval_loss/a", 2) not in found
    assert len(found) == 9


def test_five_hundred_scalars_are_five_hundred_and_their_times(tmp_path: Path) -> None:
    values = hand_over(run_of_500(tmp_path)).values
    assert len(values) == 600
    assert [value for value in values if value[:2] == ("m2", 30)] == [("m2", 30, 0.3, 32.0)]


def test_the_same_result_is_the_same_run_and_another_seed_or_sweep_is_not(tmp_path: Path) -> None:
    ids = [
        hand_over(small_run(tmp_path / "a")).id,
        hand_over(small_run(tmp_path / "b")).id,
        hand_over(small_run(tmp_path / "c", seed=8)).id,
        hand_over(small_run(tmp_path / "a"), "sweep").id,
    ]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


def test_a_failed_run_says_why(tmp_path: Path) -> None:
    found = hand_over(small_run(tmp_path, failed=True))
    assert found.failed
    assert found.tags["status"] == "failed"
    assert found.tags["error"] == "PeerLost: rank 1 (b) is lost: no heartbeat for 5 s"


def test_of_a_large_cluster_the_parts_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = small_run(tmp_path)
    nodes = {f"n{number}": {"device": "d"} for number in range(MAX_PARAMS)}
    run.config.update(made_up_config(topology={"name": "large", "nodes": nodes, "links": []}))
    found = hand_over(run)
    assert found.params["topology.name"] == "large"
    assert "topology.nodes.n0.device" not in found.params
    assert found.params["workload.batch_size"] == 32
    monkeypatch.setattr("simcluster.lab.tracking.handover.MAX_NODES", 1)
    assert {value.name for value in hand_over(run).values} == {"loss", "eval_loss", "time_s"}


def test_the_name_has_the_rate_and_each_batch_size_once() -> None:
    by_node = {"learning_rate": 0.05, "batch_size": {"mini1": 64, "mini2": 64, "pi": 8}}
    assert name_of("edp", "shelf", {"workload": by_node}, 3) == "edp-shelf-lr0.05-b64+8-3"
    assert name_of("own", "shelf", {"workload": {"path": "my.py:model"}}, 3) == "own-shelf-3"


def test_the_final_weights_are_handed_over_unless_they_are_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = small_run(tmp_path)
    weights = run.folder / FINAL_PATH
    weights.parent.mkdir(exist_ok=True)
    weights.write_bytes(bytes(10_000))
    assert hand_over(run).files[-1] == weights
    monkeypatch.setattr("simcluster.lab.tracking.handover.MOST_BYTES", 9_999)
    assert weights not in hand_over(run).files
