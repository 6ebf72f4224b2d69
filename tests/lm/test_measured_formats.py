"""`--weights auto` takes the fastest measured format that fits; predictions have the measured speed of a format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from simcluster.errors import UsageError
from simcluster.lm.formats import FORMATS, PRODUCT_FLOPS, held_bytes, work_in
from simcluster.lm.measured_formats import in_format, measured_note, speeds
from simcluster.lm.models.format_times import format_products
from simcluster.lm.serving.request_options import RequestOptions, setup_of
from simcluster.lm.serving.run import answer_all
from simcluster.topology import Topology, loads

SLOW_BF16 = {"f32": 4, "bf16": 8, "int8": 2}
"""Milliseconds of the measured products: bf16 has half the speed of f32, int8 twice."""


def shelf(*measured: Mapping[str, float], memory: str = "1 GB") -> Topology:
    nodes: dict[str, Any] = {}
    for rank, times_ms in enumerate(measured):
        profile = {work_in(name): {f"{PRODUCT_FLOPS} FLOP": f"{time_ms} ms"} for name, time_ms in times_ms.items()}
        nodes[f"n{rank}"] = {"flops": "1 TFLOP/s", "memory_bandwidth": "8 GB/s", "memory": memory, "profile": profile}
    return loads({"nodes": nodes, "links": [{"between": [*nodes], "type": "ethernet-1g"}] if len(nodes) > 1 else []})


def token_s(cluster: Topology, weights: str) -> tuple[str, float]:
    asked = RequestOptions("smollm2", prompt_tokens=4, max_tokens=3, weights=weights, placement="alone")
    setup, _ = setup_of(asked, cluster)
    return setup.precision, answer_all(setup, cluster).answers["0"].tpot_s or 0.0


def test_auto_takes_the_fastest_measured_format_and_never_a_slower_one_than_f32() -> None:
    times = {name: token_s(shelf(SLOW_BF16), name) for name in ("auto", "f32", "bf16", "int8")}
    assert times["auto"] == times["int8"]
    # Reading all weights takes as long as the products: bf16 2 times, int8 half as long as f32, besides the cache.
    assert times["bf16"][1] / times["f32"][1] == pytest.approx(2, rel=0.02)
    assert times["int8"][1] / times["f32"][1] == pytest.approx(0.5, rel=0.02)
    assert token_s(shelf({"f32": 4, "bf16": 8, "int8": 5}), "auto")[0] == "f32"
    assert token_s(shelf({"int8": 1}), "auto")[0] == "f32"  # nothing to compare with


def test_auto_takes_a_slower_format_if_the_fastest_does_not_fit() -> None:
    # SmolLM2 has 538 MB in f32 and 269 MB in bf16.
    slow = {"f32": 4, "bf16": 8}
    assert token_s(shelf(slow, memory="300 MB"), "auto")[0] == "bf16"
    with pytest.raises(UsageError, match="more memory at n0"):
        token_s(shelf(slow, memory="200 MB"), "auto")


def test_a_format_counts_only_if_all_nodes_measured_it() -> None:
    cluster = shelf(SLOW_BF16, {"f32": 1, "int8": 1})
    assert speeds(cluster) == {"f32": 1.0, "int8": pytest.approx(1.5)}
    # int8 has a quarter of the bytes: at 2 and 1 times the speed, the nodes read 4 and 2 GB/s.
    found = [in_format(cluster, "int8").device(name).memory_bandwidth_Bps for name in ("n0", "n1")]
    assert found == pytest.approx([8e9 * 2 * held_bytes("int8") / 4, 8e9 / 4])
    assert in_format(cluster, "bf16").device("n1") == cluster.device("n1")
    assert measured_note(cluster, "int8").endswith("relative to f32: f32 1.00, int8 1.50")
    assert "no format was measured: `simcluster calibrate` does" in measured_note(shelf({"q4": 1}), "q4")


def test_calibration_measures_every_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simcluster.lm.models.format_times.PRODUCT_COPIES", 1)
    found = format_products()
    assert [kind for kind, _, _ in found] == [work_in(name) for name in FORMATS]
    assert all(flops == PRODUCT_FLOPS and seconds > 0 for _, flops, seconds in found)
