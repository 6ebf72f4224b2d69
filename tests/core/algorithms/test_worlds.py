"""Settings that do not fit the world, or each other, are told before a run, with their place in the file."""

from __future__ import annotations

from typing import Any

import pytest

from simcluster.errors import UsageError
from simcluster.experiment.read.read import read_experiment


def problems(size: int, **algorithm: Any) -> list[str]:
    nodes = {f"n{rank}": {"device": "raspberry-pi-4"} for rank in range(size)}
    links = [{"between": ["n0", name], "type": "ethernet-1g"} for name in nodes if name != "n0"]
    topology = {"name": "some", "nodes": nodes, "links": links}
    try:
        read_experiment({"topology": topology, "algorithm": algorithm, "workload": "quadratic", "stop": {"steps": 1}})
    except UsageError as error:
        return [str(problem) for problem in error.problems]
    return []


@pytest.mark.parametrize("name", ["edp", "k_async", "k_sync", "softsync", "ssp", "sync_ps"])
def test_a_server_that_does_not_train_needs_somebody_who_does(name: str) -> None:
    (problem,) = problems(1, name=name, server_trains=False)
    assert problem.startswith("algorithm.server_trains: found false in a world of one rank")
    assert not problems(2, name=name, server_trains=False)
    assert not problems(1, name=name)


@pytest.mark.parametrize(
    ("name", "setting"), [("sync_ps", "wait_for"), ("k_sync", "k"), ("k_async", "k"), ("softsync", "n")]
)
def test_nobody_waits_for_more_ranks_than_train(name: str, setting: str) -> None:
    assert problems(3, name=name, **{setting: 4}) == [
        f"algorithm.{setting}: found 4, expected at most 3, the number of ranks that train"
    ]
    assert not problems(3, name=name, **{setting: 3})
    assert problems(3, name=name, **{setting: 3}, server_trains=False)


def test_k_batch_sync_takes_any_number() -> None:
    assert not problems(3, name="k_sync", k=9, batch=True)


def test_weights_are_not_compressed() -> None:
    (problem,) = problems(2, name="edp", push="weights", compression="int8")
    assert "expected none, or push: gradients" in problem


def test_other_mistakes_are_told_without_asking_for_the_world() -> None:
    (problem,) = problems(3, name="k_sync", k=0)
    assert problem.startswith("algorithm.k: found 0")
