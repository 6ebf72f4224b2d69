"""What a node does around its algorithm: it evaluates off the clock, and stops in time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from simcluster_backends.sim import run_cluster

import simcluster
from simcluster.errors import NodeFailed
from simcluster.experiment import read_experiment
from simcluster.experiment.node import LAST_STEP_S, prepare
from simcluster.job import ClusterJob
from simcluster.results import Run
from simcluster.runs.recorder import Recorder
from simcluster.topology import load
from simcluster.workloads import mnist_mlp

STEPS, SEED = 10, 2


def run(folder: Path, backend: str = "sim", **keys: Any) -> Run:
    experiment = {
        "topology": "thunderbolt-mesh-4",
        "algorithm": "sync_ps",
        "workload": {"name": "mnist_mlp", "hidden": 8},
        "stop": {"steps": STEPS},
        "seed": SEED,
        **keys,
    }
    return simcluster.run(experiment, backend=backend, out=folder, report=False)


def evaluations(run: Run, name: str) -> list[tuple[int, float]]:
    rows = run.metrics[run.metrics.name == name].sort_values("step")
    return list(zip(rows.step.tolist(), rows.value.tolist(), strict=True))


def test_the_weights_that_are_judged_are_those_of_their_moment(tmp_path: Path) -> None:
    lonely = {"name": "one", "nodes": {"a": {"device": "x86-laptop"}}, "links": []}
    found = run(tmp_path / "run", topology=lonely, evaluate_every=4)
    # The same by hand: one process, judged after steps 4 and 8, and at the end.
    replica = mnist_mlp(hidden=8).replica(0, 1, SEED, STEPS)
    judged = {}
    for step, batch in enumerate(replica.batches(), start=1):
        replica.apply(replica.loss_and_gradients(batch)[1])
        judged[step] = replica.evaluate()
    assert evaluations(found, "eval_loss") == [(step, judged[step]["loss"]) for step in (4, 8, STEPS)]
    assert evaluations(found, "eval_accuracy") == [(step, judged[step]["accuracy"]) for step in (4, 8, STEPS)]
    assert found.summary["loss"] == judged[STEPS]["loss"]


@pytest.mark.parametrize("backend", ["sim", "sockets"])
def test_evaluating_more_often_changes_nothing_else(backend: str, tmp_path: Path) -> None:
    often = run(tmp_path / "often", backend, evaluate_every=1)
    seldom = run(tmp_path / "seldom", backend, evaluate_every=1000)
    assert len(evaluations(often, "eval_loss")) == STEPS + 1  # every step, and the final weights
    assert len(evaluations(seldom, "eval_loss")) == 1
    for key in ("weights_sha256", "messages_sent", "bytes_sent", "loss", "accuracy"):
        assert often.summary[key] == seldom.summary[key], key
    if backend == "sim":
        assert often.summary["elapsed_s"] == seldom.summary["elapsed_s"]
        for nodes in (often.summary["nodes"], seldom.summary["nodes"]):
            for node in nodes.values():
                assert node.pop("predicted_peak_bytes") > 0  # counts the weights that wait for their evaluation
        assert often.summary["nodes"] == seldom.summary["nodes"]


def test_work_without_an_end_when_the_time_is_up_is_the_nodes_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited_s: list[float] = []

    def never(recorder: Recorder) -> Callable[[float], bool]:
        return lambda patience_s: bool(waited_s.append(patience_s))

    monkeypatch.setattr(Recorder, "settle", property(never, lambda recorder, settle: None), raising=False)
    with pytest.raises(NodeFailed, match="still runs after 240 s"):
        run(tmp_path / "run", stop={"steps": STEPS, "time": "1 ns"})
    assert LAST_STEP_S in waited_s
    summary = simcluster.load_run(tmp_path / "run").summary
    assert (summary["status"], summary["weights_sha256"]) == ("failed", None)


def test_a_run_stops_at_its_time_and_not_before(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole")
    half_s = whole.summary["elapsed_s"] / 2
    half = run(tmp_path / "half", stop={"steps": STEPS, "time": f"{half_s!r} s"})
    assert half.summary["status"] == "done"
    assert half.summary["elapsed_s"] == half_s
    assert 0 < half.summary["steps"] < STEPS
    longer = run(tmp_path / "longer", stop={"steps": STEPS, "time": "1 h"})
    assert longer.summary["elapsed_s"] == whole.summary["elapsed_s"]
    assert longer.summary["trace_sha256"] == whole.summary["trace_sha256"]


def test_a_time_limit_ends_all_nodes_well_although_their_clocks_differ(tmp_path: Path) -> None:
    found = run(tmp_path / "run", "sockets", stop={"steps": 1_000_000, "time": "300 ms"})
    assert found.summary["status"] == "done"
    assert 0 < found.summary["steps"] < 1_000_000


def test_costs_are_counted_before_the_clock_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting takes as long as the work, so a real run's first step would be late by it."""
    keys = {"topology": "thunderbolt-mesh-4", "algorithm": "sync_ps", "workload": {"name": "mnist_mlp", "hidden": 9}}
    config = json.dumps(read_experiment(keys | {"stop": {"steps": 2}}).document)
    prepare(config)

    def refuse(*args: object, **keywords: object) -> None:
        raise AssertionError("counted during the run")

    for name in ("matrix_cost", "elementwise_cost"):
        monkeypatch.setattr(f"simcluster.workloads.costs.counter.{name}", refuse)
    names = list(load("thunderbolt-mesh-4").workers)
    record = run_cluster(ClusterJob(names, config, topology=load("thunderbolt-mesh-4")))
    assert record.error is None
    assert record.nodes[0].steps == 2
