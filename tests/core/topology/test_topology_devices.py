"""What computes on a node is read exactly; everything wrong with it is said at once, with its place."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from simcluster.catalogue import catalogue
from simcluster.topology import Device, Profile, load, loads
from simcluster.topology.model.stragglers import Trace
from simcluster.topology.presets.links import DEVICES
from simcluster.topology.read.devices import DEVICE_KEYS, STRAGGLER_KINDS
from tests.support.clusters import device_of, problems_of, read_device, topology_with_trace
from tests.support.root import ROOT


def test_a_preset_gives_the_numbers_and_its_name_and_overridden_ones_say_so() -> None:
    device, preset = read_device("device: mac-mini-m4, memory: 32 GB, flops: 1 TFLOP/s"), DEVICES["mac-mini-m4"]
    assert (device.name, device.flops_per_s, device.memory_bytes) == ("mac-mini-m4", 1e12, 32_000_000_000)
    assert device.memory_bandwidth_Bps == preset.memory_bandwidth_Bps
    assert device.source == f"{preset.source}; flops, memory given in the topology"
    assert read_device("device: raspberry-pi-5") == DEVICES["raspberry-pi-5"]


def test_an_own_device_needs_flops_only_and_is_not_limited_by_what_it_leaves_out() -> None:
    assert read_device("flops: 100 GFLOP/s") == Device("custom", 1e11, source="given in the topology")
    device = read_device("flops: 100 GFLOP/s")
    assert (device.memory_bandwidth_Bps, device.memory_bytes) == (math.inf, None)
    assert (device.work_overhead_s, device.operator_overhead_s) == (0.0, 0.0)
    assert (device.power_idle_W, device.power_busy_W, device.price_USD_per_h) == (None, None, None)


def test_overheads_powers_and_the_price_are_read_with_their_units_and_shown() -> None:
    device = read_device(
        "flops: 1 TFLOP/s, work_overhead: 100 us, operator_overhead: 5 us, "
        "power_idle: 500 mW, power_busy: 0.04 kW, price_per_hour: 0.35 USD/h"
    )
    assert (device.work_overhead_s, device.operator_overhead_s) == (1e-4, 5e-6)
    assert (device.power_idle_W, device.power_busy_W, device.price_USD_per_h) == (0.5, 40.0, 0.35)
    assert str(device) == "1 TFLOP/s, 100 us per piece of work, 5 us per operator, 500 mW to 40 W, 0.35 USD/h"


def test_a_zero_of_ones_own_replaces_a_presets_overhead() -> None:
    device = read_device("device: mac-mini-m4, operator_overhead: 0 us, power_idle: 0 W")
    assert (device.operator_overhead_s, device.power_idle_W) == (0.0, 0.0)
    assert device.power_busy_W == DEVICES["mac-mini-m4"].power_busy_W


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("flops: 1 TFLOP/s, power_busy: 9 W, power_idle: 4", "t.yaml:1:60: nodes.a.power_idle: found 4 without a unit"),
        ("flops: 1 TFLOP/s, power_idle: 1 W, power_busy: 10 w", "'w' is no unit of power: did you mean 'W'?"),
        ("flops: 1 TFLOP/s, power_busy: 4 W", "nodes.a.power_idle: found nothing, expected a power with its unit, as"),
        ("flops: 1 TFLOP/s, power_idle: 4 W", "nodes.a.power_busy: found nothing, expected a power with its unit, as"),
        (
            "flops: 1 TFLOP/s, power_idle: 5 W, power_busy: 4 W",
            "nodes.a.power_idle: found '5 W', expected power_idle (5 W) of at most power_busy (4 W)",
        ),
        ("device: mac-mini-m4, power_busy: 1 W", "nodes.a.power_busy: found '1 W', expected power_idle (4 W) of at"),
        ("flops: 1 TFLOP/s, price_per_hour: 0.5", "nodes.a.price_per_hour: found 0.5 without a unit, expected a price"),
        ("flops: 1 TFLOP/s, price_per_hour: 1 $/h", "did you mean 'USD/h'?"),
        ("flops: 1 TFLOP/s, price_per_hour: -1 USD/h", "found '-1 USD/h', which is negative"),
        ("flops: 1 TFLOP/s, work_overhead: 1", "nodes.a.work_overhead: found 1 without a unit, expected a time"),
        ("flops: 1 TFLOP/s, operator_overhead: -1 us", "found '-1 us', which is negative"),
        ("flops: 1 TFLOP/s, operatr_overhead: 1 us", "did you mean 'operator_overhead'?"),
    ],
)
def test_every_wrong_number_of_a_device_is_named_once(keys: str, words: str) -> None:
    (problem,) = problems_of(keys)
    assert words in problem


def test_all_that_is_wrong_with_a_device_is_said_at_once() -> None:
    keys = (
        "flops: 1, memory: 0 B, power_idle: x, power_busy: y, price_per_hour: z, profile: {g: 0}, straggler: {kind: w}"
    )
    assert len(problems_of(keys)) == 8  # the profile's kind and its time are two


def test_presets_give_both_powers_or_none_and_say_where_they_are_from() -> None:
    for device in DEVICES.values():
        assert (device.power_idle_W is None) == (device.power_busy_W is None)
        if device.power_idle_W is not None and device.power_busy_W is not None:
            assert 0 < device.power_idle_W < device.power_busy_W < 1000
            assert "power" in device.source
        if device.work_overhead_s or device.operator_overhead_s:
            assert "overhead" in device.source
        assert device.price_USD_per_h is None
    assert sum(device.power_idle_W is not None for device in DEVICES.values()) >= 5


def test_list_shows_what_a_device_is() -> None:
    assert " per operator, 4 W to 39.6 W" in catalogue("devices")["mac-mini-m4"]


@pytest.mark.parametrize("suffix", ["json", "graphml"])
def test_other_formats_carry_every_key_of_a_device(tmp_path: Path, suffix: str) -> None:
    flat: dict[str, Any] = {
        "device": "raspberry-pi-4",
        "work_overhead": "1 ms",
        "operator_overhead": "2 us",
        "power_idle": "3 W",
        "power_busy": "7 W",
        "price_per_hour": "0.1 USD/h",
        "profile.net/apply": "310 us",
        "profile.net/gradient.13 MFLOP": "1.2 ms",
        "straggler.kind": "trace",
        "straggler.file": "pi4.csv",
    }
    topology_with_trace(tmp_path, "time_s,factor\n0,2\n")
    path = tmp_path / f"cluster.{suffix}"
    if suffix == "json":
        path.write_text(json.dumps({"nodes": [{"id": "a", **flat}], "edges": []}))
    else:
        keys = "".join(
            f'<key id="k{i}" for="node" attr.name="{key}" attr.type="string"/>' for i, key in enumerate(flat)
        )
        data = "".join(f'<data key="k{i}">{value}</data>' for i, value in enumerate(flat.values()))
        path.write_text(
            f'<graphml xmlns="http://graphml.graphdrawing.org/xmlns">{keys}'
            f'<graph edgedefault="undirected"><node id="a">{data}</node></graph></graphml>'
        )
    device = device_of(load(path))
    assert (device.work_overhead_s, device.operator_overhead_s) == (1e-3, 2e-6)
    assert (device.power_idle_W, device.power_busy_W, device.price_USD_per_h) == (3.0, 7.0, 0.1)
    assert device.straggler == Trace(((0.0, 2.0),))
    assert device.profile == Profile((("net/apply", ((0.0, 310e-6),)), ("net/gradient", ((13e6, 1.2e-3),))))


def test_the_page_about_devices_names_every_key_and_every_kind_and_its_example_is_read() -> None:
    page = (ROOT / "docs" / "devices.md").read_text()
    (example,) = re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)
    assert loads(example).workers == ["mini1", "pi4", "rented"]
    for key in DEVICE_KEYS:
        assert f"`{key}`" in page or f"{key}:" in page, key
    for kind, keys in STRAGGLER_KINDS.items():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{kind}` |"))
        assert all(f"`{key}`" in row for key in keys), kind
