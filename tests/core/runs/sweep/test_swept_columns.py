"""Swept values in a table: quantities are numbers with their unit in the header, blocks have labels."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from simcluster.runs.sweep.swept_columns import as_text, column_of, columns_of, key_of, label


@pytest.mark.parametrize(
    ("key", "values", "column"),
    [
        # 396.9 Mbps is 396.9e6 bits per second; mixed spellings sort as numbers.
        (
            "l.bandwidth",
            ["10Mbps", "63 Mbps", "2.5Gbps", "396.9 Mbps"],
            ("l.bandwidth_bps", [1e7, 6.3e7, 2.5e9, 3.969e8]),
        ),
        ("l.bandwidth", ["0 bps", "1 MB/s"], ("l.bandwidth_bps", [0.0, 8e6])),
        ("l.latency", ["50 us", "20 ms"], ("l.latency_s", [5e-5, 0.02])),
        ("n.memory", ["4 GB", "1 KiB"], ("n.memory_bytes", [4e9, 1024])),
        ("a.bucket_bytes", ["1 kB", "2 kB"], ("a.bucket_bytes", [1000, 2000])),
        ("n.flops", ["1 GFLOP/s", "2 GFLOP/s"], ("n.flops_flops_per_s", [1e9, 2e9])),
        ("n.power", ["4 W", "500 mW"], ("n.power_w", [4, 0.5])),
        ("n.price", ["0.5 USD/h"], ("n.price_usd_per_h", [0.5])),
        ("a.interval", [1, 4], ("a.interval", [1, 4])),
        ("a.flag", [True, False], ("a.flag", [True, False])),
        ("a.mode", ["ring", "naive"], ("a.mode", ["ring", "naive"])),
        ("a.interval", [1, "auto", None, True], ("a.interval", ["1", "auto", "none", "true"])),
        ("a.order", [[0, 1], [1, 0]], ("a.order", ["0, 1", "1, 0"])),
        ("faults", [[], [{"kind": "crash", "node": "a"}]], ("faults", ["none", "(kind crash, node a)"])),
    ],
)
def test_a_column_has_the_type_of_its_values(key: str, values: list[Any], column: tuple[str, list[Any]]) -> None:
    name, cells = columns_of(key, values)
    assert name == column[0]
    assert cells == pytest.approx(column[1]) if isinstance(cells[0], float) else cells == column[1]


def test_blocks_are_called_by_their_names_and_numbered_if_those_are_alike() -> None:
    shelf = {"name": "three Macs", "nodes": {"a": {}}, "links": []}
    other = {**shelf, "nodes": {"a": {}, "b": {}}}
    assert columns_of("topology", [shelf, other, shelf]) == ("topology", ["three Macs", "three Macs (2)", "three Macs"])
    assert label({"name": "edp", "interval": 4, "deep": {"x": 1}}) == "edp (interval 4, deep (x 1))"
    assert label({"path": "/a/own.py:train"}) == "own.py:train"
    assert label({"kind": "constant", "factor": 10}) == "kind constant, factor 10"
    assert label({"nodes": {"a": {}}, "links": []}) == "1 nodes, 0 links"


def test_quantities_become_texts_again_and_old_tables_stay_as_they_are() -> None:
    values = ["10 Mbps", "396.9 Mbps", "0 bps"]
    name, numbers = columns_of("l.bandwidth", values)
    table = pd.DataFrame({name: numbers, "a.interval": [1, 2, 3]})
    back = as_text(table, ["l.bandwidth", "a.interval"])
    assert list(back.columns) == ["l.bandwidth", "a.interval"]
    assert list(back["l.bandwidth"]) == values
    old = pd.DataFrame({"l.bandwidth": ["10Mbps"]})
    assert as_text(old, ["l.bandwidth"]) is old
    assert column_of("l.bandwidth", table.columns) == "l.bandwidth_bps"
    assert column_of("l.bandwidth", old.columns) == "l.bandwidth"
    assert key_of("l.bandwidth_bps", ["a", "l.bandwidth"]) == "l.bandwidth"
    assert key_of("other", ["a"]) == "other"
