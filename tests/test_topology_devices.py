"""What computes on a node is read exactly; everything wrong with it is said at once, with its place."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from simcluster.catalogue import catalogue
from simcluster.errors import UsageError
from simcluster.topology import Device, Profile, Topology, load, loads, profile_block
from simcluster.topology.presets import DEVICES
from simcluster.topology.stragglers import (
    Constant,
    Exponential,
    Lognormal,
    Markov,
    Pareto,
    ShiftedExponential,
    Straggler,
    Thermal,
    Trace,
    TwoPoint,
)


def device_of(topology: Topology, name: str = "a") -> Device:
    device = topology.nodes[name].device
    assert device is not None
    return device


def read(keys: str) -> Device:
    return device_of(loads(f"nodes: {{a: {{{keys}}}}}"))


def problems_of(keys: str) -> list[str]:
    with pytest.raises(UsageError) as error:
        loads(f"nodes: {{a: {{{keys}}}}}", "t.yaml")
    return [str(problem) for problem in error.value.problems]


def test_a_preset_gives_the_numbers_and_its_name_and_overridden_ones_say_so() -> None:
    device, preset = read("device: mac-mini-m4, memory: 32 GB, flops: 1 TFLOP/s"), DEVICES["mac-mini-m4"]
    assert (device.name, device.flops_per_s, device.memory_bytes) == ("mac-mini-m4", 1e12, 32_000_000_000)
    assert device.memory_bandwidth_Bps == preset.memory_bandwidth_Bps
    assert device.source == f"{preset.source}; flops, memory given in the topology"
    assert read("device: raspberry-pi-5") == DEVICES["raspberry-pi-5"]


def test_an_own_device_needs_flops_only_and_is_not_limited_by_what_it_leaves_out() -> None:
    assert read("flops: 100 GFLOP/s") == Device("custom", 1e11, source="given in the topology")
    device = read("flops: 100 GFLOP/s")
    assert (device.memory_bandwidth_Bps, device.memory_bytes) == (math.inf, None)
    assert (device.work_overhead_s, device.operator_overhead_s) == (0.0, 0.0)
    assert (device.power_idle_W, device.power_busy_W, device.price_USD_per_h) == (None, None, None)


def test_overheads_powers_and_the_price_are_read_with_their_units_and_shown() -> None:
    device = read(
        "flops: 1 TFLOP/s, work_overhead: 100 us, operator_overhead: 5 us, "
        "power_idle: 500 mW, power_busy: 0.04 kW, price_per_hour: 0.35 USD/h"
    )
    assert (device.work_overhead_s, device.operator_overhead_s) == (1e-4, 5e-6)
    assert (device.power_idle_W, device.power_busy_W, device.price_USD_per_h) == (0.5, 40.0, 0.35)
    assert str(device) == "1 TFLOP/s, 100 us a piece of work, 5 us an operator, 500 mW to 40 W, 0.35 USD/h"


def test_a_zero_of_ones_own_replaces_a_presets_overhead() -> None:
    device = read("device: mac-mini-m4, operator_overhead: 0 us, power_idle: 0 W")
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
    assert " an operator, 4 W to 39.6 W" in catalogue("devices")["mac-mini-m4"]


# stragglers


@pytest.mark.parametrize(
    ("written", "straggler", "mean_factor"),
    [
        ("{kind: constant, factor: 10}", Constant(10.0), 10.0),
        ("{factor: 2}", Constant(2.0), 2.0),
        ("{kind: lognormal, sigma: 0.5}", Lognormal(0.5), 1.0),
        ("{kind: exponential}", Exponential(1.0), 1.0),
        ("{kind: exponential, mean: 3}", Exponential(3.0), 3.0),
        ("{kind: shifted-exponential, mean: 0.5}", ShiftedExponential(0.5, 1.0), 1.5),
        ("{kind: shifted-exponential, mean: 0.5, shift: 0}", ShiftedExponential(0.5, 0.0), 0.5),
        # 2 * 3 / (3 - 1)
        ("{kind: pareto, shape: 3, minimum: 2}", Pareto(3.0, 2.0), 3.0),
        ("{kind: pareto, shape: 3}", Pareto(3.0, 1.0), 1.5),
        # 0.1 * 10 + 0.9 * 1
        ("{kind: two-point, probability: 0.1, factor: 10}", TwoPoint(10.0, 0.1), 1.9),
        # slow for a quarter of the time: 0.25 * 5 + 0.75
        ("{kind: markov, factor: 5, slow: 1 s, fast: 3 s}", Markov(5.0, 1.0, 3.0), 2.0),
        ("{kind: thermal, factor: 2, heating: 1 min, cooling: 90 s}", Thermal(2.0, 60.0, 90.0), 2.0),
        # 1 for 2 s, 4 for 1 s: 6/3
        ("{kind: trace, factors: {0 s: 1, 2 s: 4, 3 s: 1}}", Trace(((0.0, 1.0), (2.0, 4.0), (3.0, 1.0))), 2.0),
        ("{kind: trace, factors: {0 s: 7}}", Trace(((0.0, 7.0),)), 7.0),
    ],
)
def test_straggler_kinds_are_read(written: str, straggler: Straggler, mean_factor: float) -> None:
    device = read(f"device: raspberry-pi-4, straggler: {written}")
    assert device.straggler == straggler
    assert straggler.mean_factor == pytest.approx(mean_factor, rel=1e-12)
    assert str(straggler) in str(device)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("{kind: constant}", "straggler.factor: found nothing, expected a number above zero"),
        ("{kind: constant, factor: 0}", "found 0, expected a number above zero"),
        ("{kind: constant, factor: .inf}", "found inf"),
        ("{kind: constant, factor: fast}", "found 'fast'"),
        (
            "{kind: constant, factor: 2, sigma: 1}",
            "straggler.sigma: found it with kind constant, expected factor",
        ),
        ("{kind: lognormal, sigma: -1}", "found -1, expected a number from 0 to 10"),
        ("{kind: two-point, probability: 1.5, factor: 2}", "found 1.5, expected a number from 0 to 1"),
        ("{kind: log-normal, sigma: 1}", "did you mean 'lognormal'?"),
        ("{kind: constant, factr: 2, factor: 2}", "straggler.factr: found an unknown key"),
        ("10", "found 10, expected a mapping"),
        ("{kind: shifted-exponential, mean: 1, shift: -1}", "straggler.shift: found -1, expected a number, 0 or above"),
        ("{kind: shifted-exponential}", "straggler.mean: found nothing, expected a number above zero"),
        ("{kind: pareto, shape: 1}", "straggler.shape: found 1, expected a number above 1: else the mean is infinite"),
        ("{kind: pareto, shape: 2, minimum: 0}", "straggler.minimum: found 0"),
        ("{kind: markov, factor: 2, slow: 1 s, fast: 0 s}", "straggler.fast: found '0 s', which is zero"),
        ("{kind: markov, factor: 2, slow: 1, fast: 1 s}", "straggler.slow: found 1 without a unit"),
        ("{kind: thermal, factor: 2, heating: 1 s}", "straggler.cooling: found nothing, expected a time with its unit"),
        ("{kind: trace}", "straggler: found neither, expected either file or factors"),
        ("{kind: trace, file: x.csv, factors: {0 s: 1}}", "straggler: found both, expected either file or factors"),
        ("{kind: trace, file: 3}", "straggler.file: found 3, expected the path of a CSV file"),
        ("{kind: trace, factors: {}}", "straggler.factors: found an empty mapping, expected a mapping of times"),
        ("{kind: trace, factors: {1 s: 2}}", "found '1 s', expected 0 first"),
        ("{kind: trace, factors: {0 s: 2, 5 s: 1, 5000 ms: 3}}", "found '5000 ms', expected a time after 5 s"),
        ("{kind: trace, factors: {0: 2}}", "found '0' without a unit"),
        ("{kind: trace, factors: {0 s: -2}}", "straggler.factors.0 s: found -2, expected a number above zero"),
    ],
)
def test_only_what_a_straggler_kind_uses_is_accepted(written: str, words: str) -> None:
    (problem,) = problems_of(f"device: raspberry-pi-4, straggler: {written}")
    assert words in problem


def test_all_that_is_wrong_with_a_straggler_is_said_at_once() -> None:
    problems = problems_of("device: raspberry-pi-4, straggler: {kind: markov, factor: 0, slow: 1, sigma: 3, what: 1}")
    found = {problem.partition("straggler.")[2].partition(":")[0] for problem in problems}
    assert found == {"factor", "slow", "sigma", "what", "fast"}
    assert len(problems) == 5


# traces from files


def topology_with_trace(folder: Path, csv: str, name: str = "pi4.csv") -> Path:
    (folder / name).write_text(csv)
    path = folder / "cluster.yaml"
    path.write_text(f"nodes: {{a: {{device: raspberry-pi-4, straggler: {{kind: trace, file: {name}}}}}}}\n")
    return path


def test_a_trace_lies_beside_the_topology_and_travels_inside_its_document(tmp_path: Path) -> None:
    path = topology_with_trace(tmp_path, "# measured on Sunday\ntime_s,factor\n0,1\n\n2.5, 4\n3,1.5\n")
    topology = load(path)
    assert device_of(topology).straggler == Trace(((0.0, 1.0), (2.5, 4.0), (3.0, 1.5)))
    (tmp_path / "pi4.csv").unlink()
    assert loads(yaml.safe_dump(topology.document)) == loads(json.loads(json.dumps(topology.document)))
    assert device_of(loads(topology.document)) == device_of(topology)


@pytest.mark.parametrize(
    ("csv", "places"),
    [
        ("time_s,factor\n0,1\n2,0\n1,x\n3\n", ["pi4.csv:3", "pi4.csv:4", "pi4.csv:5"]),
        ("seconds,factor\n0,1\n", ["pi4.csv:1"]),
        ("", ["pi4.csv: trace"]),
        ("time_s,factor\n", ["pi4.csv: trace: found no rows"]),
        ("time_s,factor\n1,2\n", ["pi4.csv:2: trace: found '1,2', expected 0 first"]),
        ("time_s,factor\n0,2\n5,1\n5,3\n", ["pi4.csv:4: trace: found '5,3', expected a time after 5 s"]),
        ("time_s,factor\n0,inf\n", ["pi4.csv:2: trace: found '0,inf', expected finite numbers"]),
    ],
)
def test_everything_wrong_in_a_trace_is_told_with_its_file_and_line(
    tmp_path: Path, csv: str, places: list[str]
) -> None:
    with pytest.raises(UsageError) as error:
        load(topology_with_trace(tmp_path, csv))
    problems = [str(problem) for problem in error.value.problems]
    assert len(problems) == len(places)
    for problem, place in zip(problems, places, strict=True):
        assert place in problem


def test_a_trace_that_is_not_there_is_an_error_and_so_is_one_of_endless_faults(tmp_path: Path) -> None:
    path = topology_with_trace(tmp_path, "time_s,factor\n" + "x\n" * 100)
    with pytest.raises(UsageError) as error:
        load(path)
    assert len(error.value.problems) == 21
    assert "80 more wrong rows" in str(error.value.problems[-1])
    (tmp_path / "pi4.csv").unlink()
    with pytest.raises(UsageError, match=r"pi4\.csv.*No such file"):
        load(path)
    topology_with_trace(tmp_path, "time_s,factor\n" + "".join(f"{row},2\n" for row in range(10_001)))
    with pytest.raises(UsageError, match="found 10001 rows, expected at most 10000"):
        load(path)


def test_a_trace_named_on_the_command_line_starts_where_the_command_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "mine.csv").write_text("time_s,factor\n0,3\n")
    path = topology_with_trace(tmp_path, "time_s,factor\n0,2\n")
    monkeypatch.chdir(tmp_path / "here")
    assert device_of(load(path)).straggler == Trace(((0.0, 2.0),))
    one = load(path, overrides={"nodes.a.straggler.file": "mine.csv"})
    whole = load(path, overrides={"nodes.a.straggler": "{kind: trace, file: mine.csv}"})
    assert device_of(one).straggler == device_of(whole).straggler == Trace(((0.0, 3.0),))


def test_a_trace_in_an_experiment_lies_beside_the_experiment(tmp_path: Path) -> None:
    from simcluster.experiment.read import read_experiment

    topology_with_trace(tmp_path, "time_s,factor\n0,2\n")
    (tmp_path / "e.yaml").write_text(
        "topology: {nodes: {a: {device: raspberry-pi-4, straggler: {kind: trace, file: pi4.csv}}}}\n"
        "algorithm: all_reduce_dp\nworkload: quadratic\nstop: {steps: 1}\n"
    )
    assert device_of(read_experiment(tmp_path / "e.yaml").topology).straggler == Trace(((0.0, 2.0),))


# profiles


def test_a_profile_is_read_as_times_by_flops_or_as_one_time() -> None:
    device = read(
        "device: raspberry-pi-4, profile: {net/gradient: {26 MFLOP: 2.3 ms, 13000000 FLOP: 1.2 ms}, net/apply: 310 us}"
    )
    assert device.profile == Profile(
        (("net/gradient", ((13e6, 1.2e-3), (26e6, 2.3e-3))), ("net/apply", ((0.0, 310e-6),)))
    )
    assert "measured for net/gradient, net/apply" in str(device)
    assert device.source.endswith("profile given in the topology")


def test_what_a_measurement_writes_reads_back_to_the_same_profile() -> None:
    block = profile_block({"net/gradient": {26_181_632: 0.0023, 13_090_816: 0.00121}, "net/apply": {0: 310e-6}})
    assert block == {"net/gradient": {"13090816 FLOP": "1210 us", "26181632 FLOP": "2.3 ms"}, "net/apply": "310 us"}
    profile = device_of(loads({"nodes": {"a": {"device": "x86-laptop", "profile": block}}})).profile
    assert profile is not None
    assert profile.seconds("net/gradient", 26_181_632) == 0.0023
    assert profile.seconds("net/apply", 5.0) == 310e-6


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("{}", "nodes.a.profile: found an empty mapping, expected a mapping of kinds of work to times"),
        ("3 ms", "nodes.a.profile: found '3 ms', expected a mapping"),
        ("{net/gradient: 3}", "nodes.a.profile.net/gradient: found 3 without a unit"),
        ("{net/gradient: 0 ms}", "found '0 ms', which is zero"),
        ("{net/gradient: }", "nodes.a.profile.net/gradient: found nothing, expected a time, or times by FLOPs"),
        ("{net/gradient: {}}", "nodes.a.profile.net/gradient: found an empty mapping, expected a time, or times"),
        ("{gradient: 3 ms}", "found 'gradient', expected a kind of work: workload/what"),
        ("{net/gradient: {13: 1 ms}}", "net/gradient.13: found '13' without a unit, expected an amount of arithmetic"),
        ("{net/gradient: {13 MFLOP/s: 1 ms}}", "'MFLOP/s' is no unit of amount of arithmetic"),
        ("{net/gradient: {1 MFLOP: 1 ms, 1000 kFLOP: 2 ms}}", "the same amount of arithmetic a second time"),
        ("{net/gradient: {1 MFLOP: -1 ms}}", "found '-1 ms', which is negative"),
        ("{net/gradient: {1 MFLOP: }}", "net/gradient.1 MFLOP: found nothing, expected a time with its unit"),
    ],
)
def test_only_a_profile_that_can_be_read_is_accepted(written: str, words: str) -> None:
    (problem,) = problems_of(f"device: raspberry-pi-4, profile: {written}")
    assert words in problem


def test_overrides_reach_into_a_profile_and_a_straggler() -> None:
    base = loads("nodes: {a: {device: raspberry-pi-4, profile: {net/gradient: 3 ms}}}")
    changed = base.with_overrides(
        {"nodes.a.profile.net/gradient": "5 ms", "nodes.a.straggler": {"kind": "pareto", "shape": 2}}
    )
    profile = device_of(changed).profile
    assert profile is not None
    assert profile.seconds("net/gradient", 1.0) == 5e-3
    assert device_of(changed).straggler == Pareto(2.0)
    with pytest.raises(UsageError, match="did you mean 'shape'"):
        base.with_overrides({"nodes.a.straggler.shap": 2})


# other formats


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
