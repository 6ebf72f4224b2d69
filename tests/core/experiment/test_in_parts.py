"""Ranks hold parts of a model only where no result can come from a rank that lacks the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import simcluster
from simcluster.experiment.node_part import in_parts
from simcluster.experiment.read.read import read_experiment

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


def test_real_nodes_say_what_memory_they_took_and_simulated_ones_share_theirs(tmp_path: Path) -> None:
    def nodes(backend: str) -> list[dict[str, Any]]:
        run = simcluster.run(EXPERIMENT, backend=backend, out=tmp_path / backend, report=False)
        return list(run.summary["nodes"].values())

    real = nodes("sockets")
    assert [0 < node["grown_rss_bytes"] < node["peak_rss_bytes"] for node in real] == [True, True]
    assert {(node["peak_rss_bytes"], node["grown_rss_bytes"]) for node in nodes("sim")} == {(None, None)}
