"""Looking how far replicas are apart: the right distances, on both backends, and nothing of the run is another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import simcluster
from simcluster.errors import UsageError
from simcluster.experiment.read.read import read_experiment
from simcluster.paths.spool import Spool
from simcluster.runs.record import Copy, NodeRecord, RunRecord, hand_in, put_back, told
from simcluster.runs.summary import CONSENSUS
from simcluster.runs.write import consensus_metrics

GOSSIP: dict[str, Any] = {
    "topology": "thunderbolt-mesh-4",
    "algorithm": {"name": "d_psgd"},
    "workload": {"name": "mnist_mlp", "hidden": 4},
    "stop": {"steps": 6},
    "evaluate_every": 2,
}


def copy_of(step: int, *values: float, time_s: float = 1.0) -> Copy:
    vector = np.array(values, dtype=np.float32)
    return Copy(time_s, step, vector.dtype.str, vector.nbytes, vector.tobytes())


def run_of(*nodes: list[Copy]) -> RunRecord:
    return RunRecord([NodeRecord(rank, f"n{rank}", copies=copies) for rank, copies in enumerate(nodes)], 5.0, 0.1)


def test_a_distance_is_the_squared_one_from_the_mean_of_all() -> None:
    """(0, 0), (3, 0) and (0, 3) have the mean (1, 1): 2, 4 + 1 and 1 + 4."""
    found = consensus_metrics(run_of([copy_of(2, 0, 0)], [copy_of(2, 3, 0, time_s=1.5)], [copy_of(2, 0, 3)]))
    assert [(rank, metric.value) for rank, metric in found] == [(0, 2.0), (1, 5.0), (2, 5.0)]
    assert [metric.time_s for _, metric in found] == [1.0, 1.5, 1.0]


def test_only_steps_that_all_have_made_are_compared_and_the_last_time_that_they_did() -> None:
    # Rank 1 began again and made step 2 twice; step 4 it never made.
    found = consensus_metrics(run_of([copy_of(2, 1), copy_of(4, 9)], [copy_of(2, 7), copy_of(2, 3)]))
    assert [(metric.step, metric.value) for _, metric in found] == [(2, 1.0), (2, 1.0)]


def test_parts_of_a_model_have_no_distance() -> None:
    assert consensus_metrics(run_of([copy_of(2, 1)], [copy_of(2, 1, 2)])) == []
    assert consensus_metrics(RunRecord([], 0.0, 0.0)) == []


def test_what_is_handed_in_apart_is_put_back_together() -> None:
    record = NodeRecord(0, "a", weights=Spool(b"final"), copies=[copy_of(1, 5, 6), copy_of(2, 7)])
    content = b"".join(hand_in(record))
    rest = replace(record, weights=None, copies=told(record.copies))
    found = put_back(rest, Spool(content))
    assert found.weights is not None
    assert b"".join(found.weights.pieces()) == b"final"
    assert found.copies == record.copies
    # A node that died meanwhile has handed in less.
    assert put_back(rest, Spool(content[:3])) == replace(record, weights=None, copies=[])
    assert put_back(NodeRecord(0, "a"), Spool()).weights is None


def distances(run: simcluster.Run, name: str) -> pd.DataFrame:
    rows = run.metrics[run.metrics["name"] == name].sort_values(["step", "node"])
    return rows[["step", "node", "value"]].reset_index(drop=True)


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> simcluster.Run:
    return simcluster.run(GOSSIP | {"evaluate_consensus": True}, out=tmp_path_factory.mktemp("a") / "r", report=False)


def test_looking_changes_nothing_but_the_metrics(looked: simcluster.Run, tmp_path: Path) -> None:
    run = simcluster.run(GOSSIP, out=tmp_path / "r", report=False)
    for key in ("trace_sha256", "weights_sha256", "elapsed_s", "bytes_sent"):
        assert run.summary[key] == looked.summary[key]
    others = looked.metrics[looked.metrics["name"] != CONSENSUS].reset_index(drop=True)
    pd.testing.assert_frame_equal(others, run.metrics)
    # 4 nodes after steps 2, 4 and 6
    assert len(looked.metrics) == len(others) + 12


def test_it_is_what_the_nodes_themselves_measure_with_an_all_reduce(looked: simcluster.Run, tmp_path: Path) -> None:
    gossip = GOSSIP | {"algorithm": {"name": "d_psgd", "consensus_every": 2}}
    measured = distances(simcluster.run(gossip, out=tmp_path / "r", report=False), "consensus")
    pd.testing.assert_frame_equal(distances(looked, CONSENSUS), measured, rtol=1e-5)  # theirs is in single precision
    line = next(trace for trace in looked.plot.consensus("step").data if trace.name == "mean of all nodes")
    assert list(line.x) == [2, 4, 6]
    assert list(line.y) == pytest.approx(list(measured.groupby("step")["value"].mean()), rel=1e-5)


def test_both_backends_find_the_same_bits(looked: simcluster.Run, tmp_path: Path) -> None:
    asked = GOSSIP | {"evaluate_consensus": True}
    real = simcluster.run(asked, backend="sockets", out=tmp_path / "r", report=False)
    pd.testing.assert_frame_equal(distances(real, CONSENSUS), distances(looked, CONSENSUS), check_exact=True)


def test_a_run_repeats_from_its_own_configuration(looked: simcluster.Run) -> None:
    assert read_experiment(looked.config).evaluate_consensus
    assert "evaluate_consensus" not in read_experiment(GOSSIP).document


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"evaluate_consensus": "yes"}, "true or false"),
        ({"evaluate_consensus": True, "numerics": "none"}, "no weights"),
    ],
)
def test_what_cannot_be_looked_at_is_told(more: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=f"evaluate_consensus.*{words}"):
        read_experiment(GOSSIP | more)
