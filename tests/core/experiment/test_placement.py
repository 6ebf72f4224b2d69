"""Before a run: the topology's numbers where settings ask for them, and models that cannot be cut as asked for."""

from __future__ import annotations

from typing import Any

import pytest

from simcluster.errors import UsageError
from simcluster.experiment.preflight import check_memory
from simcluster.experiment.read.experiment import Experiment
from simcluster.experiment.read.read import read_experiment
from tests.core.experiment.test_order import GPT


def experiment(
    algorithm: dict[str, Any], workers: int = 3, workload: dict[str, Any] = GPT, **changes: Any
) -> Experiment:
    nodes: dict[str, Any] = {f"n{i}": {"flops": f"{i + 1} GFLOP/s"} for i in range(workers)}
    links = [
        {"between": [f"n{i}", "sw"], "bandwidth": f"{8 * (i + 1)} Mbps", "latency": "1 ms"} for i in range(workers)
    ]
    return read_experiment(
        {
            "topology": {"name": "uneven", "nodes": {**nodes, "sw": {"kind": "switch"}}, "links": links},
            "algorithm": algorithm,
            "workload": workload,
            "stop": {"steps": 2},
            **changes,
        }
    )


def test_topology_stands_for_the_speed_of_each_rank_and_of_the_way_to_the_next() -> None:
    found = experiment({"name": "pipeline", "flops_per_s": "topology", "bandwidth_Bps": "topology"})
    assert found.algorithm_settings["flops_per_s"] == (1e9, 2e9, 3e9)
    # Ways of 1 and 2, of 2 and 3, and back of 3 and 1 MB/s: the slower counts.
    assert found.algorithm_settings["bandwidth_Bps"] == (1e6, 2e6, 1e6)
    assert found.document["algorithm"]["bandwidth_Bps"] == [1e6, 2e6, 1e6]
    again = read_experiment(found.document)
    assert again.algorithm_settings == found.algorithm_settings, "what is written down repeats the run"


def test_a_rank_alone_has_no_way_to_a_next() -> None:
    found = experiment({"name": "pipeline", "flops_per_s": "topology", "bandwidth_Bps": "topology"}, workers=1)
    assert len(found.algorithm_settings["bandwidth_Bps"]) == 1


@pytest.mark.parametrize("numerics", ["real", "none"])
@pytest.mark.parametrize(
    ("algorithm", "workload", "problem"),
    [
        ({"name": "pipeline"}, {"name": "quadratic"}, "3 stages, expected at most 1 stages, one for each layer"),
        ({"name": "pipeline", "micro_batches": 5}, GPT, "algorithm.micro_batches: found 5, expected a divisor of 12"),
        ({"name": "pipeline", "cuts": [4, 3]}, GPT, r"algorithm.cuts: found \[4, 3\], expected 2 rising numbers"),
        ({"name": "pipeline", "flops_per_s": [1.0]}, GPT, "algorithm.flops_per_s: found 1 numbers, expected 3"),
        ({"name": "tensor_parallel"}, GPT, "found 2 heads, expected a multiple of the 3 ranks"),
    ],
)
def test_what_cannot_be_cut_is_told_before_anything_runs(
    algorithm: dict[str, Any], workload: dict[str, Any], problem: str, numerics: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        experiment(algorithm, workload=workload, numerics=numerics)


def test_what_can_be_cut_is_let_pass() -> None:
    assert experiment({"name": "pipeline", "schedule": "interleaved"}).algorithm_settings["chunks"] is None
    assert experiment({"name": "tensor_parallel"}, workers=2).algorithm_name == "tensor_parallel"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pipeline", "tensor_parallel"])
def test_a_node_too_small_for_the_model_may_be_large_enough_for_its_part(name: str) -> None:
    # 3.1 million parameters in each of 2 blocks: 26 MB of weights, as much of gradients, twice that of Adam.
    large = {"name": "gpt", "layers": 2, "width": 512, "heads": 4, "context": 8, "batch_size": 4}

    def check(algorithm: str, small: str) -> None:
        changes = {f"topology.nodes.n{i}.memory": small for i in (1, 2, 3)} | {"topology.nodes.n0.memory": "1 GB"}
        plan = experiment({"name": algorithm}, workers=4, workload=large)
        check_memory(read_experiment(plan.document, changes))

    check(name, "60 MB")
    with pytest.raises(UsageError, match=r"nodes.n1.memory: found 60 MB on n1, n2 and n3"):
        check("all_reduce_dp", "60 MB")
    with pytest.raises(UsageError, match=f"bytes of messages of {name}|of messages of {name}"):
        check(name, "30 MB")
