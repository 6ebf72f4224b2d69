"""Overrides of a topology file: read as in the file, refused with its errors."""

from __future__ import annotations

import copy

import pytest

from simcluster.errors import UsageError
from simcluster.topology import load, loads
from simcluster.topology.model.stragglers import Constant
from tests.core.topology.reading import TWO, problems_of


def test_overrides_are_read_as_in_a_file_and_links_answer_to_both_orders() -> None:
    topology = loads(
        TWO,
        overrides={
            "nodes.b.device": "raspberry-pi-4",
            "nodes.b.straggler.factor": "10",
            "links.b-a.bandwidth": "10 Mbps",
            "links.a-b.latency": "1 ms",
            "name": "changed",
        },
    )
    device, link = topology.nodes["b"].device, topology.links[0]
    assert device is not None
    assert (device.name, device.straggler) == ("raspberry-pi-4", Constant(10.0))
    assert (link.bandwidth_Bps, link.latency_s, topology.name) == (1.25e6, 1e-3, "changed")
    assert topology.document["nodes"]["b"]["straggler"] == {"factor": 10}


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (
            "nodes.c.device",
            "x",
            "override nodes.c.device: unknown key 'c'; expected one of a, b",
        ),
        ("nodes.a.devise", "x", "unknown key 'devise'; did you mean 'device'?"),
        ("nodes.a.straggler.facto", 1, "did you mean 'factor'?"),
        ("nodes.a.device.x", 1, "no further key after device"),
        ("nodes", 1, "nodes.NAME.KEY=VALUE"),
        ("links.a-c.latency", "1 us", "unknown key 'a-c'; did you mean 'a-b'?"),
        ("links.a-b.latncy", "1 us", "did you mean 'latency'?"),
        ("node.a.device", "x", "did you mean 'nodes'?"),
        (
            "nodes.a.device",
            "mac-mini-m5",
            "nodes.a.device (set by override nodes.a.device): found 'mac-mini-m5'",
        ),
        (
            "links.a-b.bandwidth",
            5,
            "links[0].bandwidth (set by override links.a-b.bandwidth): found 5 without a unit",
        ),
        ("nodes.a.device", "[", "YAML syntax"),
    ],
)
def test_an_override_that_is_wrong_is_named(key: str, value: object, words: str) -> None:
    with pytest.raises(UsageError) as error:
        loads(TWO, overrides={key: value})
    assert len(error.value.problems) == 1
    assert words in str(error.value)


def test_errors_of_overrides_and_of_the_file_come_together() -> None:
    assert len(problems_of(TWO.replace("1 Gbps", "1"), nodes__b__device="x", nodes__q__device="x")) == 3


def test_overriding_a_topology_changes_a_copy() -> None:
    topology = loads(TWO)
    before = copy.deepcopy(topology.document)
    faster = load(topology, overrides={"links.a-b.bandwidth": "10 Gbps"})
    assert (topology.links[0].bandwidth_Bps, faster.links[0].bandwidth_Bps) == (125e6, 1.25e9)
    assert topology.document == before
    assert load(topology) is topology
    assert faster != topology


def test_a_setting_of_a_generator_for_a_topology_with_nodes_says_what_has_it() -> None:
    with pytest.raises(UsageError) as refused:
        load("smolcluster", overrides={"workers": 9})
    (problem,) = refused.value.problems
    assert str(problem) == (
        "override workers: found 'workers', a setting of generators, expected a topology from one, such as "
        "{generator: star, workers: 8}: this one lists its nodes and links"
    )
    assert len(load({"generator": "star", "workers": 2}, overrides={"workers": 9}).workers) == 9


def test_a_key_of_all_links_changes_each_of_them() -> None:
    topology = load("star-8-gigabit", overrides={"links.*.bandwidth": "10 Mbps", "links.n3-sw.bandwidth": "1 Mbps"})
    assert [link.bandwidth_Bps for link in topology.links] == [1.25e6] * 3 + [1.25e5] + [1.25e6] * 4


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("bandwidth", "links.*.bandwidth, for all links"),
        ("links.bandwidth", "links.*.bandwidth, for all of them"),
        ("nodes.device", "nodes.*.device, for all of them"),
        ("links.*.bandwith", "did you mean 'bandwidth'?"),
    ],
)
def test_a_key_without_a_name_says_how_it_is_spelt_for_all(key: str, expected: str) -> None:
    with pytest.raises(UsageError) as refused:
        load("star-8-gigabit", overrides={key: "1 Mbps"})
    assert str(refused.value.problems[0]).endswith(expected)


def test_a_misspelt_setting_of_a_generator_says_so_too() -> None:
    with pytest.raises(UsageError, match="found 'wrkers', similar to 'workers', a setting of generators, expected a"):
        load("smolcluster", overrides={"wrkers": 9})
