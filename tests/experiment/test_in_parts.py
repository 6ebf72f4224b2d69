"""Ranks hold parts of a model only where no result can come from a rank that lacks the rest."""

from __future__ import annotations

from typing import Any

import pytest

from simcluster.experiment.part import in_parts
from simcluster.experiment.read import read_experiment

EXPERIMENT: dict[str, Any] = {
    "topology": {"generator": "star", "workers": 2, "bandwidth": "1 Gbps", "latency": "1 ms"},
    "algorithm": {"name": "zero", "stage": 3},
    "workload": "mnist_mlp",
    "stop": {"steps": 2},
}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, True),
        ({"algorithm": "pipeline"}, True),
        ({"algorithm": "all_reduce_dp"}, False),
        ({"stop": {"steps": 2, "time": "1 s"}}, False),
        ({"evaluate_consensus": True}, False),
    ],
)
def test_a_rank_holds_a_part_only_if_the_whole_is_gathered_at_the_end(changed: dict[str, Any], expected: bool) -> None:
    assert in_parts(read_experiment(EXPERIMENT | changed), 2) is expected
