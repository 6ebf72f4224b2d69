"""Every key about the network changes the trace of a run; what is drawn changes with the seed; none of them fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from simcluster_backends.sim.plain_flows import finish_times

import simcluster
from simcluster.topology import load, star
from simcluster.topology.plain_flows import PlainFlow
from tests.support.clusters import arrivals

LINK = "topology.links.mini1-mini2"
KNOBS: dict[str, Any] = {
    "topology.network": "lv08",
    "topology.inbox": "0 B",
    "topology.background": "[{from: mini1, to: mini2, rate: 16 Gbps}]",
    "topology.nodes.mini1.send_overhead": "50 us",
    "topology.nodes.mini1.recv_overhead": "50 us",
    "topology.nodes.mini1.host_bandwidth": "100 MB/s",
    f"{LINK}.background": "{rate: 16 Gbps, on: 100 us, off: 100 us}",
    f"{LINK}.jitter": "100 us",
    f"{LINK}.loss": 0.01,
    f"{LINK}.trace": "{steps: {0 s: 0.01, 1 s: 1}}",
    f"{LINK}.medium": "air",
    f"{LINK}.ack_share": 0.3,
}
DRAWN = (f"{LINK}.background", f"{LINK}.jitter", f"{LINK}.loss")


def trace_of(tmp_path: Path, overrides: dict[str, Any], seed: int = 0) -> str:
    run = simcluster.run(
        "quickstart",
        algorithm="all_reduce_dp",
        overrides={"stop.steps": 3, "evaluate_every": 3, **overrides},
        seed=seed,
        out=tmp_path / "run",
        report=False,
    )
    assert run.summary["status"] == "done"
    found: str = run.summary["trace_sha256"]
    return found


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    return trace_of(tmp_path_factory.mktemp("plain"), {})


@pytest.mark.slow
@pytest.mark.parametrize("key", KNOBS)
def test_a_key_changes_the_trace_the_same_way_every_time(key: str, plain: str, tmp_path: Path) -> None:
    once = trace_of(tmp_path, {key: KNOBS[key]})
    assert once != plain
    assert trace_of(tmp_path, {key: KNOBS[key]}) == once


@pytest.mark.parametrize("key", DRAWN)
def test_what_is_drawn_is_drawn_from_a_stream_of_the_seed(key: str) -> None:
    name = key.removeprefix(LINK).strip(".")
    two = load(star(2, bandwidth="16 Gbps", latency="75 us"), overrides={f"links.n0-sw.{name}": KNOBS[key]})
    sizes = [1_000_000] * 5
    assert arrivals(two, sizes, seed=1) == arrivals(two, sizes, seed=1)
    assert arrivals(two, sizes, seed=1) != arrivals(two, sizes, seed=2)


def test_the_trace_of_timing_alone_is_that_with_numerics_whatever_is_in_the_way(tmp_path: Path) -> None:
    rough = {key: KNOBS[key] for key in (f"{LINK}.jitter", f"{LINK}.loss", "topology.nodes.mini1.send_overhead")}
    elapsed = {
        numerics: simcluster.run(
            "quickstart",
            overrides={"stop.steps": 3, "numerics": numerics, **rough},
            out=tmp_path / numerics,
            report=False,
        ).summary["elapsed_s"]
        for numerics in ("real", "none")
    }
    assert elapsed["none"] == pytest.approx(elapsed["real"], rel=1e-9)


def test_a_run_uses_the_model_that_its_topology_names() -> None:
    plain = star(2, bandwidth="1 MB/s", latency="5 ms")
    named = load(plain, overrides={"network": "lv08"})
    # 13.01 latencies, and 0.97 of the bandwidth
    assert arrivals(named, [970_000]) == pytest.approx([1.0 + 13.01 * 0.01], rel=1e-9)
    assert arrivals(plain, [970_000]) == pytest.approx([0.97 + 0.01], rel=1e-9)
    assert arrivals(plain, [970_000], model="lv08") == arrivals(named, [970_000])
    flow = [PlainFlow("n0", "n1", 970_000.0)]
    assert finish_times(named, flow) == pytest.approx([1.0 + 13.01 * 0.01], rel=1e-9)
    assert finish_times(named, flow, "maxmin") == pytest.approx([0.98], rel=1e-9)
