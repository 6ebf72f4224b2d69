"""The block `checkpoint` of an experiment: what is wrong with it is told at once; what is right comes back the same."""

from __future__ import annotations

from typing import Any

import pytest

from simcluster.errors import UsageError
from simcluster.experiment.read.keys import CheckpointSettings
from simcluster.experiment.read.read import read_experiment
from tests.support.kept import config


def problems(block: Any, **keys: Any) -> dict[str, str]:
    with pytest.raises(UsageError) as error:
        read_experiment(config("all_reduce_dp") | {"checkpoint": block} | keys)
    return {problem.key: problem.expected for problem in error.value.problems}


def test_without_the_block_nothing_is_kept() -> None:
    plan = read_experiment(config("all_reduce_dp"))
    assert plan.checkpoint is None
    assert "checkpoint" not in plan.document


def test_a_right_block_is_completed_and_reads_back_to_itself() -> None:
    plan = read_experiment(config("all_reduce_dp") | {"checkpoint": {"every": 5}})
    assert plan.checkpoint == CheckpointSettings(every=5, keep=3, best=None)
    assert plan.document["checkpoint"] == {"every": 5, "keep": 3}
    assert read_experiment(plan.document).checkpoint == plan.checkpoint
    best = {"every": 5, "keep": 1, "best": "loss"}
    assert read_experiment(config("edp") | {"checkpoint": best}).document["checkpoint"] == best


def test_all_that_is_wrong_is_told_at_once() -> None:
    found = problems({"every": 0, "keep": "two", "best": "speed", "evry": 3}, seed=-1)
    assert found["checkpoint.every"] == "a whole number of steps, from 1 to 1000000000"
    assert found["checkpoint.keep"] == "a whole number, from 1 to 1000000000"
    assert found["checkpoint.best"] == "accuracy or loss"
    assert "every" in found["checkpoint.evry"]
    assert "seed" in found


@pytest.mark.parametrize("block", [[], "often", 3])
def test_what_is_no_mapping_is_told(block: Any) -> None:
    assert problems(block) == {"checkpoint": "a mapping: every, keep, best"}


def test_nothing_is_kept_where_nothing_is_computed() -> None:
    assert "numerics: none" in problems({"every": 2}, numerics="none")["checkpoint"]


@pytest.mark.parametrize(("algorithm", "settings"), [("zero", {"stage": 3}), ("tensor_parallel", {})])
def test_who_has_no_whole_model_has_no_best(algorithm: str, settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="no whole model"):
        read_experiment(config(algorithm, **settings) | {"checkpoint": {"every": 2, "best": "loss"}})
    read_experiment(config("zero", stage=2) | {"checkpoint": {"every": 2, "best": "loss"}})
