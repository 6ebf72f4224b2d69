"""A measured profile: read from a topology, written for one, and read off between and beyond its points."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcluster.errors import UsageError
from simcluster.experiment.preflight import warn_of_misspelt
from simcluster.experiment.read.read import read_experiment
from simcluster.topology import Profile, load, loads, profile_block
from simcluster.topology.model.stragglers import Pareto
from tests.support.clusters import device_of, problems_of, read_device


def test_a_profile_is_read_as_times_by_flops_or_as_one_time() -> None:
    device = read_device(
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
        ("{net/gradeint: 3 ms}", "found 'net/gradeint', expected the work of a replica: did you mean 'gradient'?"),
        ("{a/b/aply: 3 ms}", "nodes.a.profile.a/b/aply: found 'a/b/aply', expected the work of a replica: did you"),
        ("{net/gradient: {13: 1 ms}}", "net/gradient.13: found '13' without a unit, expected an amount of arithmetic"),
        ("{net/gradient: {13 MFLOP/s: 1 ms}}", "'MFLOP/s' is no unit of amount of arithmetic"),
        ("{net/gradient: {1 MFLOP: 1 ms, 1000 kFLOP: 2 ms}}", "a duplicate amount of arithmetic"),
        ("{net/gradient: {1 MFLOP: -1 ms}}", "found '-1 ms', which is negative"),
        ("{net/gradient: {1 MFLOP: }}", "net/gradient.1 MFLOP: found nothing, expected a time with its unit"),
    ],
)
def test_only_a_profile_that_can_be_read_is_accepted(written: str, words: str) -> None:
    (problem,) = problems_of(f"device: raspberry-pi-4, profile: {written}")
    assert words in problem


def test_overrides_reach_into_a_profile_and_a_straggler() -> None:
    base = loads("nodes: {a: {device: raspberry-pi-4, profile: {net/gradient: 3 ms}}}")
    changed = load(
        base,
        overrides={"nodes.a.profile.net/gradient": "5 ms", "nodes.a.straggler": {"kind": "pareto", "shape": 2}},
    )
    profile = device_of(changed).profile
    assert profile is not None
    assert profile.seconds("net/gradient", 1.0) == 5e-3
    assert device_of(changed).straggler == Pareto(2.0)
    with pytest.raises(UsageError, match="did you mean 'shape'"):
        load(base, overrides={"nodes.a.straggler.shap": 2})


def test_own_code_may_call_its_work_otherwise() -> None:
    device = read_device("device: raspberry-pi-4, profile: {net/encode: 1 ms, net/applied: 2 ms, net/backward: 3 ms}")
    assert "measured for net/encode, net/applied, net/backward" in str(device)


def test_a_run_warns_of_a_profile_of_nearly_its_workload_and_of_no_other(caplog: pytest.LogCaptureFixture) -> None:
    kinds = ("mnist-mlp/gradient", "mnist_mlp/apply", "quadratic/apply", "mine/gradient")
    device = {"device": "raspberry-pi-4", "profile": dict.fromkeys(kinds, "3 ms")}
    topology = {
        "nodes": {"a": device, "b": {"device": "x86-laptop"}},
        "links": [{"between": ["a", "b"], "type": "wan"}],
    }
    plan = read_experiment(
        {"name": "n", "topology": topology, "algorithm": "sync_ps", "workload": "mnist_mlp", "stop": {"steps": 1}}
    )
    warn_of_misspelt(plan)
    (record,) = caplog.records
    assert record.getMessage() == ("nodes.a.profile.mnist-mlp/gradient is not used: did you mean 'mnist_mlp/gradient'?")


# reading off


def seconds(points: dict[float, float], flops: float) -> float:
    found = Profile((("net/gradient", tuple(sorted(points.items()))),)).seconds("net/gradient", flops)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("points", "flops", "takes_s"),
    [
        ({0.0: 3.0}, 1e12, 3.0),  # of any size
        ({2.0: 3.0}, 4.0, 6.0),  # in proportion
        ({2.0: 3.0, 4.0: 7.0}, 2.0, 3.0),
        ({2.0: 3.0, 4.0: 7.0}, 3.0, 5.0),  # half way
        ({2.0: 3.0, 4.0: 7.0}, 5.0, 9.0),  # 2 s more for each FLOP
        ({2.0: 5.0, 4.0: 7.0}, 0.0, 3.0),  # an overhead of 3 s and 1 s a FLOP
        ({2.0: 3.0, 4.0: 7.0}, 1.0, 1.5),  # the line would begin below 0
        ({2.0: 7.0, 4.0: 3.0}, 8.0, 3.0),  # what gets quicker with size by chance does not get ever quicker
        ({2.0: 7.0, 4.0: 3.0}, 1.0, 7.0),
        ({1.0: 1.0, 2.0: 3.0, 4.0: 4.0}, 3.0, 3.5),
    ],
)
def test_times_are_read_off_straight_lines(points: dict[float, float], flops: float, takes_s: float) -> None:
    assert seconds(points, flops) == takes_s


@given(
    st.dictionaries(st.floats(1, 1e9), st.floats(1e-6, 1e3), min_size=1, max_size=5),
    st.lists(st.floats(0, 1e10), min_size=1, max_size=5),
)
def test_no_work_takes_less_than_nothing_and_what_was_measured_takes_what_was_measured(
    points: dict[float, float], sizes: list[float]
) -> None:
    assert all(seconds(points, flops) >= 0 for flops in sizes)
    for flops, takes_s in points.items():
        assert seconds(points, flops) == pytest.approx(takes_s, rel=1e-9)


def test_a_kind_that_was_not_measured_has_no_time() -> None:
    assert Profile((("net/gradient", ((0.0, 1.0),)),)).seconds("net/apply", 1.0) is None
