"""Gradient norms when asked for: the right numbers, of every rank and step, in a run that is the same without them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

import simcluster
from simcluster.errors import UsageError
from simcluster.experiment.measurements import GRADIENT_NORM, LEARNING_RATE, joint, norms
from simcluster.experiment.read.read import read_experiment

RUN: dict[str, Any] = {
    "topology": {"generator": "star", "workers": 3},
    "workload": {"name": "quadratic"},
    "stop": {"steps": 6},
}


def run(folder: Path, algorithm: Any, **keys: Any) -> Any:
    return simcluster.run(**{**RUN, **keys}, algorithm=algorithm, out=folder, report=False)


@pytest.mark.parametrize("algorithm", ["all_reduce_dp", "edp", "ad_psgd", "diloco"])
def test_a_run_that_is_looked_at_is_the_same_run(algorithm: str, tmp_path: Path) -> None:
    plain = run(tmp_path / "plain", algorithm)
    seen = run(tmp_path / "seen", algorithm, observe={"gradient_norms": True})
    for key in ("trace_sha256", "weights_sha256", "elapsed_s", "bytes_sent", "messages_sent"):
        assert seen.summary[key] == plain.summary[key], key
    norms = seen.metrics[seen.metrics["name"] == GRADIENT_NORM]
    trained = {(node, step) for node, step in zip(norms["node"], norms["step"], strict=True)}
    assert len(trained) == len(norms)
    assert {step for _, step in trained} == set(range(1, 7))
    assert len({node for node, _ in trained}) == 3
    assert (norms["value"] > 0).all()
    assert GRADIENT_NORM not in set(plain.metrics["name"])


def test_the_first_norm_is_that_of_the_first_gradient(tmp_path: Path) -> None:
    seen = run(tmp_path / "seen", "all_reduce_dp", observe={"gradient_norms": True})
    experiment = read_experiment({**RUN, "algorithm": "all_reduce_dp"})
    for rank, node in enumerate(experiment.topology.workers):
        replica = experiment.workload.replica(rank, 3, 0, steps=6)
        _, gradients = replica.loss_and_gradients(next(replica.batches()))
        expected = torch.cat([gradient.flatten().double() for gradient in gradients]).norm().item()
        rows = seen.metrics[(seen.metrics["name"] == GRADIENT_NORM) & (seen.metrics["node"] == node)]
        first = rows[rows["step"] == rows["step"].min()]
        assert first["value"].tolist() == pytest.approx([expected])


def test_the_configuration_of_the_run_says_so_and_reads_back() -> None:
    wanted = read_experiment({**RUN, "algorithm": "edp"}, {"observe.gradient_norms": True})
    assert wanted.observe.gradient_norms
    assert read_experiment(json.loads(json.dumps(wanted.document))).observe == wanted.observe
    both = read_experiment({**RUN, "algorithm": "edp", "observe": {"gradient_norms": "layers", "learning_rate": True}})
    assert both.document["observe"] == {"gradient_norms": "layers", "learning_rate": True}
    assert read_experiment(json.loads(json.dumps(both.document))).observe == both.observe
    assert "observe" not in read_experiment({**RUN, "algorithm": "edp", "observe": {}}).document


@pytest.mark.parametrize(
    ("algorithm", "more", "words"),
    [
        ("pipeline", {}, "no rank has a gradient of the whole model"),
        ({"name": "all_reduce_dp", "bucket_bytes": 1000}, {}, "buckets leave"),
        ("edp", {"numerics": "none"}, "numerics: real"),
        ("edp", {"numerics": "none", "observe": {"gradient_norms": "layers"}}, "numerics: real"),
        ("edp", {"numerics": "none", "observe": {"learning_rate": True}}, "numerics: real"),
        ("tensor_parallel", {"observe": {"gradient_norms": "layers"}}, "no rank has a gradient of the whole model"),
        ("edp", {"observe": {"gradient_norm": True}}, "gradient_norms"),
        ("edp", {"observe": {"learning_rates": True}}, "learning_rate"),
        ("edp", {"observe": {"gradient_norms": "layer"}}, "true or false, or layers"),
        ("edp", {"observe": {"gradient_norms": 1}}, "true or false, or layers"),
        ("edp", {"observe": {"learning_rate": 0.1}}, "true or false"),
        ("edp", {"observe": {"gradient_norms": "yes"}}, "true or false"),
        ("edp", {"observe": True}, "a mapping"),
    ],
)
def test_where_there_is_nothing_to_see_it_is_refused(algorithm: Any, more: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_experiment({**RUN, "algorithm": algorithm, "observe": {"gradient_norms": True}, **more})


def test_the_norm_is_that_of_all_numbers_together() -> None:
    # 3, 4 and 12: the root of 9 + 16 + 144
    each = norms([torch.tensor([3.0, 4.0]), torch.tensor([[12.0]])])
    assert each == [5.0, 12.0]
    assert joint(each) == 13.0
    assert math.isnan(joint([math.inf]))


@pytest.mark.parametrize("algorithm", ["all_reduce_dp", "edp"])
def test_with_layers_each_parameter_has_a_norm_and_the_joint_one_stays(algorithm: str, tmp_path: Path) -> None:
    plain = run(tmp_path / "plain", algorithm, observe={"gradient_norms": True})
    seen = run(tmp_path / "seen", algorithm, observe={"gradient_norms": "layers"})
    for key in ("trace_sha256", "weights_sha256", "elapsed_s", "bytes_sent"):
        assert seen.summary[key] == plain.summary[key], key
    rows = seen.metrics[seen.metrics["name"].str.startswith(GRADIENT_NORM)]
    names = {f"{GRADIENT_NORM}/{name}" for name in read_experiment({**RUN, "algorithm": "edp"}).workload.sketch.names}
    assert set(rows["name"]) == {GRADIENT_NORM, *names}
    assert (
        rows[rows["name"] == GRADIENT_NORM]["value"].tolist()
        == plain.metrics[plain.metrics["name"] == GRADIENT_NORM]["value"].tolist()
    )
    for _, of_step in rows.groupby(["node", "step"]):
        value = of_step.set_index("name")["value"]
        assert len(value) == 1 + len(names)
        assert value[GRADIENT_NORM] == pytest.approx(math.hypot(*(value[name] for name in names)))


# ZeRO's optimizers are those of parts; in edp the server steps, and the workers have no optimizer that does.
@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "steppers"), [("all_reduce_dp", 3), ("zero", 3), ("pipeline", 3), ("edp", 1)])
def test_the_learning_rate_is_that_of_every_rank_that_steps(algorithm: str, steppers: int, tmp_path: Path) -> None:
    more: dict[str, Any] = {"workload": {"name": "gpt", "batch_size": 4, "layers": 4, "learning_rate": 0.004}}
    if algorithm == "pipeline":
        more["algorithm"] = {"name": "pipeline", "micro_batches": 2}
    keys = {**RUN, "stop": {"steps": 2}, "algorithm": algorithm, "report": False, **more}
    plain = simcluster.run(**keys, out=tmp_path / "plain")
    seen = simcluster.run(**keys, out=tmp_path / "seen", observe={"learning_rate": True})
    assert seen.summary["trace_sha256"] == plain.summary["trace_sha256"]
    rates = seen.metrics[seen.metrics["name"] == LEARNING_RATE]
    assert set(rates["value"]) == {0.004}
    assert rates["node"].nunique() == steppers
    assert not rates.duplicated(["node", "step"]).any()
    assert LEARNING_RATE not in set(plain.metrics["name"])
