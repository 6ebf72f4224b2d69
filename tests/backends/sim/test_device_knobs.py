"""Whatever a topology may say of a device changes what a run does or what it costs; and the same says the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import simcluster

NODE = {
    "flops": "1 GFLOP/s",
    "memory_bandwidth": "100 GB/s",
    "memory": "1 GB",
    "power_idle": "1 W",
    "power_busy": "9 W",
}
EXPERIMENT = {
    "topology": {
        "nodes": {"a": {**NODE, "price_per_hour": "1 USD/h"}, "b": {**NODE, "price_per_hour": "1 USD/h"}},
        "links": [{"between": ["a", "b"], "type": "ethernet-1g"}],
    },
    "algorithm": "all_reduce_dp",
    "workload": {"name": "quadratic", "features": 64, "batch_size": 64},
    "stop": {"steps": 5},
}


def summary(folder: Path, value: Any = None, key: str = "", seed: int = 0) -> dict[str, Any]:
    overrides = {f"topology.nodes.b.{key}": value} if key else {}
    run = simcluster.run(dict(EXPERIMENT), overrides=overrides, out=folder, report=False, seed=seed)
    return run.summary


TIMES = {
    "flops": "0.5 GFLOP/s",
    "memory_bandwidth": "1 MB/s",
    "work_overhead": "1 ms",
    "operator_overhead": "100 us",
    "profile": {"quadratic/gradient": "2 ms"},
    "profile.quadratic/apply": "3 ms",
    "device": "mac-mini-m4",  # for its overhead: the numbers above stay
}
STRAGGLERS: list[dict[str, Any]] = [
    {"kind": "constant", "factor": 3},
    {"kind": "lognormal", "sigma": 0.5},
    {"kind": "exponential"},
    {"kind": "shifted-exponential", "mean": 1},
    {"kind": "pareto", "shape": 2},
    {"kind": "two-point", "probability": 0.5, "factor": 3},
    {"kind": "markov", "factor": 3, "slow": "20 us", "fast": "20 us"},
    {"kind": "thermal", "factor": 3, "heating": "100 us", "cooling": "100 us"},
    {"kind": "trace", "factors": {"0 s": 1, "50 us": 3}},
]
RANDOM = ("lognormal", "exponential", "shifted-exponential", "pareto", "two-point", "markov")
OTHER_SETTINGS = {
    "constant": {"factor": 2},
    "lognormal": {"sigma": 0.1},
    "exponential": {"mean": 2},
    "shifted-exponential": {"shift": 0},
    "pareto": {"minimum": 2},
    "two-point": {"probability": 0.9},
    "markov": {"slow": "40 us"},
    "thermal": {"cooling": "1 s"},
    "trace": {"factors": {"0 s": 1, "50 us": 4}},
}


@pytest.mark.parametrize("key", TIMES)
def test_what_makes_work_slower_changes_the_trace(tmp_path: Path, key: str) -> None:
    base, changed, again = (
        summary(tmp_path / name, TIMES[key], use) for name, use in (("base", ""), ("changed", key), ("again", key))
    )
    assert changed["trace_sha256"] != base["trace_sha256"]
    assert changed["trace_sha256"] == again["trace_sha256"]
    # How long work takes changes nothing that is computed.
    assert changed["weights_sha256"] == base["weights_sha256"]


@pytest.mark.slow
@pytest.mark.parametrize("straggler", STRAGGLERS, ids=lambda straggler: straggler["kind"])
def test_every_straggler_changes_the_trace_with_its_settings_and_the_random_ones_with_the_seed(
    tmp_path: Path, straggler: dict[str, Any]
) -> None:
    base = summary(tmp_path / "base")
    changed, again = (summary(tmp_path / name, straggler, "straggler") for name in ("changed", "again"))
    other = summary(tmp_path / "other", {**straggler, **OTHER_SETTINGS[straggler["kind"]]}, "straggler")
    assert changed["trace_sha256"] == again["trace_sha256"]
    assert len({each["trace_sha256"] for each in (base, changed, other)}) == 3
    times = [summary(tmp_path / str(seed), straggler, "straggler", seed)["nodes"]["b"]["compute_s"] for seed in (1, 2)]
    if straggler["kind"] in RANDOM:
        assert times[0] != times[1]
    else:
        assert times[0] == times[1] == changed["nodes"]["b"]["compute_s"]


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [("power_idle", "2 W", "joules"), ("power_busy", "90 W", "joules"), ("price_per_hour", "2 USD/h", "price_usd")],
)
def test_power_and_price_change_the_bill_and_nothing_else(tmp_path: Path, key: str, value: str, shown: str) -> None:
    base, changed = summary(tmp_path / "base"), summary(tmp_path / "changed", value, key)
    assert changed["trace_sha256"] == base["trace_sha256"]
    assert changed[shown] > base[shown]
    assert changed["nodes"]["b"][shown] > base["nodes"]["b"][shown]
    assert changed["nodes"]["a"][shown] == base["nodes"]["a"][shown]
