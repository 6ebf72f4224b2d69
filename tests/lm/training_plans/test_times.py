"""The seconds and bytes of a step, against simulated runs of the same algorithm on the same topology."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import yaml

import simcluster
from simcluster.lm.training_plans.candidates import defaults
from simcluster.lm.training_plans.extrapolated_gpt import GptBlocks
from simcluster.lm.training_plans.model import blocks_of
from simcluster.lm.training_plans.rank_group import RankGroup, StepTime
from simcluster.lm.training_plans.times import TIMES
from simcluster.topology import loads

MODEL: dict[str, Any] = {
    "size": "7b", "layers": 4, "width": 64, "heads": 8, "kv_heads": 8, "feed_forward": 128, "vocabulary": 256,
    "context": 64, "tied": False, "clip_norm": None,
}  # fmt: skip
FAST = {"flops": "1 TFLOP/s", "memory_bandwidth": "100 GB/s", "operator_overhead": "5 us"}
SLOW = {"flops": "200 GFLOP/s", "memory_bandwidth": "20 GB/s", "operator_overhead": "10 us", "work_overhead": "100 us"}
HEADER_BYTES = 100
"""A message's header is shorter. It takes no time in the simulator, and is not part of a step's bytes."""


def star(devices: list[dict[str, str]], latency: str = "50 us") -> dict[str, Any]:
    nodes: dict[str, Any] = {f"n{i}": device for i, device in enumerate(devices)}
    links = [{"between": [name, "sw"], "bandwidth": "1 Gbps", "latency": latency} for name in nodes]
    return {"name": "star", "nodes": nodes | {"sw": {"kind": "switch"}}, "links": links}


@cache
def blocks(tied: bool) -> GptBlocks:
    return blocks_of(MODEL | {"tied": tied})


def simulated(topology: Any, algorithm: dict[str, Any], batch: Any, tied: bool) -> tuple[float, float, float]:
    """The seconds, bytes and messages of one step: what a run of one more round takes more."""
    interval, found = algorithm.get("interval", 1), []
    for rounds in (2, 3):
        run = simcluster.run(
            topology=topology, algorithm=algorithm, stop={"steps": rounds * interval}, numerics="none", report=False,
            workload={"name": "gpt", **MODEL, "tied": tied, "batch_size": batch},
        )  # fmt: skip
        found.append([run.summary[key] for key in ("elapsed_s", "bytes_sent", "messages_sent")])
    seconds, sent, messages = ((b - a) / interval for a, b in zip(*found, strict=True))
    return seconds, sent, messages


def predicted(topology: dict[str, Any], algorithm: dict[str, Any], batch: Any, tied: bool = False) -> StepTime:
    cluster, settings = loads(yaml.safe_dump(topology)), defaults(algorithm["name"]) | algorithm
    names = cluster.workers
    if algorithm["name"] == "pipeline":
        settings["micro_batches"] = settings["micro_batches"] or len(names)
    sizes = [batch[name] if isinstance(batch, dict) else batch for name in names]
    return TIMES[algorithm["name"]](RankGroup(cluster, names, blocks(tied), sizes), settings)


def check(
    topology: dict[str, Any], algorithm: dict[str, Any], batch: Any, tolerance: float, tied: bool = False
) -> None:
    step = predicted(topology, algorithm, batch, tied)
    seconds, sent, messages = simulated(topology, algorithm, batch, tied)
    assert step.step_s == pytest.approx(seconds, rel=tolerance)
    assert 0 < sent - step.sent_bytes < HEADER_BYTES * messages
    assert 0 < step.compute_s < step.step_s


ALGORITHMS = [
    {"name": "all_reduce_dp"},
    {"name": "all_reduce_dp", "schedule": "direct"},
    {"name": "local_sgd", "interval": 3},
    {"name": "diloco", "interval": 2, "schedule": "direct"},
    {"name": "tensor_parallel"},
    {"name": "pipeline", "schedule": "gpipe"},
    {"name": "pipeline"},
    {"name": "pipeline", "micro_batches": 8},
]
ZERO = [{"name": "zero", "stage": stage} for stage in (1, 2)]


def name_of(algorithm: dict[str, Any]) -> str:
    return " ".join(map(str, algorithm.values()))


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [*ALGORITHMS, *ZERO], ids=name_of)
def test_a_step_takes_the_simulators_time_where_all_nodes_are_alike(
    algorithm: dict[str, Any], tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    check(star([FAST] * 4), algorithm, 2, 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=name_of)
def test_a_step_takes_the_simulators_time_where_a_node_is_slower(
    algorithm: dict[str, Any], tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    check(star([FAST, SLOW, FAST, FAST]), algorithm, 2, 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("micro_batches", [2, 8])
def test_stages_that_share_a_table_exchange_its_gradient(micro_batches: int, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    # The exchange shares a link with the last hop, which the replay leaves out.
    check(star([FAST] * 4, "1 ms"), {"name": "pipeline", "micro_batches": micro_batches}, 2, 0.05, tied=True)


@pytest.mark.slow
def test_a_step_of_unequal_batches_takes_the_simulators_time(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    check(star([FAST, SLOW, FAST]), {"name": "all_reduce_dp"}, {"n0": 4, "n1": 1, "n2": 3}, 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "tolerance"),
    [
        ({"name": "zero", "stage": 1}, 0.02),
        ({"name": "zero", "stage": 2}, 0.02),
        ({"name": "zero", "stage": 3}, 0.1),
    ],
    ids=str,
)
def test_what_is_not_exact_is_within_its_stated_tolerance(
    algorithm: dict[str, Any], tolerance: float, tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    check(star([FAST, SLOW, FAST, FAST]), algorithm, 2, tolerance)


def test_a_single_node_computes_and_sends_nothing() -> None:
    step = predicted(star([FAST]), {"name": "all_reduce_dp"}, 2)
    assert step.step_s == step.compute_s
    assert step.sent_bytes == 0
