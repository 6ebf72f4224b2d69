"""Gradient norms when asked for: the right numbers, of every rank and step, in a run that is the same without them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import simcluster
from simcluster.errors import UsageError
from simcluster.experiment.measurements import GRADIENT_NORM, norm
from simcluster.experiment.read import read_experiment

RUN: dict[str, Any] = {
    "topology": {"generator": "star", "workers": 3},
    "workload": {"name": "quadratic"},
    "stop": {"steps": 6},
}


def run(folder: Path, algorithm: Any, **keys: Any) -> Any:
    return simcluster.run(**RUN, algorithm=algorithm, out=folder, report=False, **keys)


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
    assert wanted.gradient_norms
    assert read_experiment(json.loads(json.dumps(wanted.document))).gradient_norms
    assert "observe" not in read_experiment({**RUN, "algorithm": "edp", "observe": {}}).document


@pytest.mark.parametrize(
    ("algorithm", "more", "words"),
    [
        ("pipeline", {}, "no rank has a gradient of the whole model"),
        ({"name": "all_reduce_dp", "bucket_bytes": 1000}, {}, "buckets leave"),
        ("edp", {"numerics": "none"}, "numerics: real"),
        ("edp", {"observe": {"gradient_norm": True}}, "gradient_norms"),
        ("edp", {"observe": {"gradient_norms": "yes"}}, "true or false"),
        ("edp", {"observe": True}, "a mapping"),
    ],
)
def test_where_there_is_nothing_to_see_it_is_refused(algorithm: Any, more: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_experiment({**RUN, "algorithm": algorithm, "observe": {"gradient_norms": True}, **more})


def test_the_norm_is_that_of_all_numbers_together() -> None:
    # 3, 4 and 12: the root of 9 + 16 + 144
    assert norm([torch.tensor([3.0, 4.0]), torch.tensor([[12.0]])]) == 13.0
    assert norm([torch.tensor([float("inf")])]) != norm([torch.tensor([1.0])])
