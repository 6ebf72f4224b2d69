"""The seconds and bytes of an expert-parallel step, against timing-only runs of the same layout."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

import simcluster
from simcluster.lm.training_plans.candidates import defaults
from simcluster.lm.training_plans.model import blocks_of
from simcluster.lm.training_plans.rank_group import RankGroup
from simcluster.lm.training_plans.times import TIMES
from simcluster.topology import loads

MODEL: dict[str, Any] = {
    "size": "7b", "layers": 3, "width": 32, "heads": 4, "kv_heads": 2, "head_width": 16, "feed_forward": 64,
    "vocabulary": 256, "context": 16, "tied": False, "clip_norm": None, "experts": 8, "active": 2,
}  # fmt: skip
FAST = {"flops": "1 TFLOP/s", "memory_bandwidth": "100 GB/s", "operator_overhead": "5 us"}
SLOW = {"flops": "200 GFLOP/s", "memory_bandwidth": "20 GB/s", "operator_overhead": "10 us", "work_overhead": "100 us"}
HEADER_BYTES = 100


def star(devices: list[dict[str, str]]) -> dict[str, Any]:
    nodes: dict[str, Any] = {f"n{i}": device for i, device in enumerate(devices)}
    links = [{"between": [name, "sw"], "bandwidth": "1 Gbps", "latency": "50 us"} for name in nodes]
    return {"name": "star", "nodes": nodes | {"sw": {"kind": "switch"}}, "links": links}


CASES: dict[str, tuple[list[dict[str, str]], dict[str, Any], Any]] = {
    "all": ([FAST] * 4, {}, 2),
    "two by two": ([FAST] * 4, {"layout": {"data": 2, "expert": 2}}, 2),
    "zipf": ([FAST, SLOW, FAST, FAST], {"load": "zipf(0.5)", "capacity_factor": 1.0}, 2),
    "unequal": ([FAST, SLOW], {"load": [1, 1, 1, 1, 2, 2, 4, 4], "balance_loss": 0.1}, {"n0": 3, "n1": 1}),
    "merged": (
        [FAST, SLOW, FAST, FAST], {"merge": True, "layout": {"data": 2, "expert": 2}, "capacity_factor": 0.7}, 3
    ),
    "tensor": ([FAST] * 4, {"layout": {"tensor": 2, "expert": 2}}, 2),
    "tensor, in parts": ([FAST] * 4, {"layout": {"tensor": 2, "data": 2}, "micro_batches": 2}, 2),
    "pipeline": ([FAST] * 4, {"layout": {"pipeline": 4}, "micro_batches": 8}, 2),
    "tied": ([FAST] * 2, {"layout": {"pipeline": 2}}, 2),
    "three": ([FAST] * 8, {"layout": {"pipeline": 2, "tensor": 2, "expert": 2}, "micro_batches": 4}, 2),
}  # fmt: skip
"""Devices, settings and batch sizes. In "three", hops between stages share links with sums, which is not replayed."""
QUICK = ("unequal", "tensor", "pipeline")


@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in CASES]
)
def test_a_step_takes_the_time_and_bytes_of_the_timing_only_run(case: str, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    devices, settings, batch = CASES[case]
    model = MODEL | {"tied": case == "tied"}
    topology, found = star(devices), []
    for steps in (2, 3):
        run = simcluster.run(
            topology=topology, algorithm={"name": "expert_parallel", **settings},
            workload={"name": "gpt", **model, "batch_size": batch}, stop={"steps": steps}, numerics="none",
            report=False,
        )  # fmt: skip
        found.append([run.summary[key] for key in ("elapsed_s", "bytes_sent", "messages_sent")])
    seconds, sent, messages = (b - a for a, b in zip(*found, strict=True))
    cluster = loads(yaml.safe_dump(topology))
    sizes = [batch[name] if isinstance(batch, dict) else batch for name in cluster.workers]
    group = RankGroup(cluster, cluster.workers, blocks_of(model), sizes)
    step = TIMES["expert_parallel"](group, defaults("expert_parallel") | settings)
    assert step.step_s == pytest.approx(seconds, rel=0.01 if case == "three" else 1e-9)
    assert 0 < sent - step.sent_bytes < HEADER_BYTES * messages
    assert 0 < step.compute_s < step.step_s
