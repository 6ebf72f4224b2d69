"""The seconds and bytes of an expert-parallel step, against timing-only runs of the same layout."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

import simcluster
from simcluster.lm.training_plans.candidates import defaults
from simcluster.lm.training_plans.model import blocks_of
from simcluster.lm.training_plans.times import TIMES, RankGroup
from simcluster.topology import loads

MODEL: dict[str, Any] = {
    "size": "7b", "layers": 3, "width": 32, "heads": 4, "kv_heads": 2, "head_width": 16, "feed_forward": 64,
    "vocabulary": 256, "context": 16, "tied": False, "clip_norm": None, "experts": 8, "active": 2,
}  # fmt: skip
FAST = {"flops": "1 TFLOP/s", "memory_bandwidth": "100 GB/s", "operator_overhead": "5 us"}
SLOW = {"flops": "200 GFLOP/s", "memory_bandwidth": "20 GB/s", "operator_overhead": "10 us", "work_overhead": "100 us"}
HEADER_BYTES = 100
BLOCKS = blocks_of(MODEL)


def star(devices: list[dict[str, str]]) -> dict[str, Any]:
    nodes: dict[str, Any] = {f"n{i}": device for i, device in enumerate(devices)}
    links = [{"between": [name, "sw"], "bandwidth": "1 Gbps", "latency": "50 us"} for name in nodes]
    return {"name": "star", "nodes": nodes | {"sw": {"kind": "switch"}}, "links": links}


CASES: list[tuple[list[dict[str, str]], dict[str, Any], Any]] = [
    ([FAST] * 4, {}, 2),
    ([FAST] * 4, {"layout": {"data": 2, "expert": 2}}, 2),
    ([FAST, SLOW, FAST, FAST], {"load": "zipf(0.5)", "capacity_factor": 1.0}, 2),
    ([FAST, SLOW], {"load": [1, 1, 1, 1, 2, 2, 4, 4], "balance_loss": 0.1}, {"n0": 3, "n1": 1}),
    ([FAST, SLOW, FAST, FAST], {"merge": True, "layout": {"data": 2, "expert": 2}, "capacity_factor": 0.7}, 3),
]


@pytest.mark.parametrize(
    ("devices", "settings", "batch"),
    [*(pytest.param(*case, marks=pytest.mark.slow) for case in CASES[:3]), *CASES[3:]],
    ids=["all", "two by two", "zipf", "unequal", "merged"],
)
def test_a_step_takes_the_time_and_bytes_of_the_timing_only_run(
    devices: list[dict[str, str]], settings: dict[str, Any], batch: Any, tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    topology, found = star(devices), []
    for steps in (2, 3):
        run = simcluster.run(
            topology=topology, algorithm={"name": "expert_parallel", **settings},
            workload={"name": "gpt", **MODEL, "batch_size": batch}, stop={"steps": steps}, numerics="none",
            report=False,
        )  # fmt: skip
        found.append([run.summary[key] for key in ("elapsed_s", "bytes_sent", "messages_sent")])
    seconds, sent, messages = (b - a for a, b in zip(*found, strict=True))
    cluster = loads(yaml.safe_dump(topology))
    sizes = [batch[name] if isinstance(batch, dict) else batch for name in cluster.workers]
    group = RankGroup(cluster, cluster.workers, BLOCKS, sizes)
    step = TIMES["expert_parallel"](group, defaults("expert_parallel") | settings)
    assert step.step_s == pytest.approx(seconds, rel=1e-9)
    assert 0 < sent - step.sent_bytes < HEADER_BYTES * messages
    assert 0 < step.compute_s < step.step_s
