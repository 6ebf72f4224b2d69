"""Graphs that people have: attributes of other programs, names of cities, nothing but nodes and edges."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import networkx
import numpy
import pytest

import simcluster
from simcluster.errors import UsageError
from simcluster.experiment.read.read import read_experiment
from simcluster.topology import Topology, from_networkx, load

PI = {"device": "raspberry-pi-5", "bandwidth": "1 Gbps", "latency": "1 ms"}


def made(graph: networkx.Graph[Any]) -> Topology:
    return from_networkx(graph, **PI)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@pytest.mark.parametrize(
    ("graph", "ignored"),
    [
        (networkx.karate_club_graph(), "34 nodes: club; on 78 edges: weight"),
        (networkx.complete_bipartite_graph(2, 3), "5 nodes: bipartite"),
        (networkx.random_geometric_graph(9, 2, seed=1), "9 nodes: pos"),
    ],
)
def test_attributes_of_others_are_named_on_one_line(
    graph: networkx.Graph[Any], ignored: str, caplog: pytest.LogCaptureFixture
) -> None:
    topology = made(graph)
    assert lines(caplog) == [f"ignored on {ignored}"]
    assert {node.device.name for node in topology.nodes.values() if node.device} == {"raspberry-pi-5"}
    assert {link.bandwidth_Bps for link in topology.links} == {1.25e8}


def test_defaults_are_for_what_lacks_them(caplog: pytest.LogCaptureFixture) -> None:
    graph: networkx.Graph[str] = networkx.Graph()
    graph.add_node("a", pos=(0, 1))
    graph.add_node("b", device="mac-mini-m4", site="home")
    graph.add_node("c", kind="switch")
    graph.add_edge("a", "c", latency="5 ms")
    graph.add_edge("b", "c", type="ethernet-1g")
    topology = from_networkx(graph, **{**PI, "device": {"device": "raspberry-pi-5", "site": "hut"}})
    assert [(node.device.name if node.device else "", node.site) for node in topology.nodes.values()] == [
        ("raspberry-pi-5", "hut"),
        ("mac-mini-m4", "home"),
        ("", None),
    ]
    assert topology.links[0].latency_s == 0.005
    assert topology.links[1].type == "ethernet-1g"
    assert len(lines(caplog)) == 1


def test_a_misspelt_key_is_an_error_and_no_foreign_attribute() -> None:
    graph: networkx.Graph[int] = networkx.path_graph(2)
    graph.edges[0, 1]["bandwith"] = "1 Gbps"
    with pytest.raises(UsageError, match="unknown key; did you mean 'bandwidth'"):
        made(graph)


def test_a_number_under_a_name_with_its_unit_is_read() -> None:
    graph: networkx.Graph[int] = networkx.path_graph(4)
    graph.edges[0, 1].update(LinkSpeedRaw=622000000.0, delay_ms=3)
    graph.edges[1, 2].update(capacity_Gbps=10, LinkSpeedRaw=1.0)
    graph.edges[2, 3].update(bandwidth_mbps="fast", delay=4)
    links = made(graph).links
    assert [(link.bandwidth_Bps * 8, link.latency_s) for link in links] == [(622e6, 0.003), (1e10, 0.001), (1e9, 0.001)]


def test_names_of_cities_are_made_safe_in_sight(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    cities = ["New York", "São Paulo", "Łódź", "Weißenburg", "MI-3", "-x"]
    topology = made(networkx.path_graph(cities))
    assert list(topology.nodes) == ["New_York", "Sao_Paulo", "Lodz", "Weissenburg", "MI-3", "_x"]
    assert len(lines(caplog)) == 1
    assert "'New York' is New_York, 'São Paulo' is Sao_Paulo" in lines(caplog)[0]
    path = tmp_path / "x.json"
    nodes = [{"id": "New York", "device": "mac-mini-m4"}, {"id": "b", "device": "mac-mini-m4"}]
    edges = [{"source": "New York", "target": "b", "type": "ethernet-1g"}]
    path.write_text(json.dumps({"nodes": nodes, "edges": edges}))
    assert list(load(path).nodes) == ["New_York", "b"]


def test_two_cities_of_one_name_and_other_scripts_are_refused() -> None:
    with pytest.raises(UsageError, match="a second node called New_York: 'New York' and 'New_York'"):
        made(networkx.path_graph(["New York", "New_York"]))
    with pytest.raises(UsageError, match="found '北京', expected a name of letters"):
        made(networkx.path_graph(["北京", "上海"]))


def test_a_bare_graph_is_one_sentence_with_the_way_on() -> None:
    with pytest.raises(UsageError) as error:
        read_experiment("quickstart", topology=networkx.random_regular_graph(4, 64, seed=1))
    (line,) = str(error.value).splitlines()
    assert "found 64 nodes without a device, 128 edges without a bandwidth, 128 edges without a latency" in line
    assert "Topology.from_networkx(graph, device='raspberry-pi-5', bandwidth='1 Gbps', latency='1 ms')" in line


def test_a_graph_with_many_attributes_is_one_short_line(caplog: pytest.LogCaptureFixture) -> None:
    graph: networkx.Graph[int] = networkx.path_graph(2)
    graph.nodes[0].update({f"{number}" * 100: 1 for number in range(30)})
    made(graph)
    (line,) = lines(caplog)
    assert len(line) < 20 * 55 + 100
    assert line.endswith(", and 10 more")


def test_a_matrix_is_told_how_it_becomes_a_graph() -> None:
    matrix = numpy.ones((3, 3))
    for topology in (matrix, matrix.tolist()):
        with pytest.raises(
            UsageError, match=r"Topology\.from_networkx\(networkx\.from_numpy_array\(matrix\)"
        ) as caught:
            simcluster.run("quickstart", topology=topology)
        assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match=r"found a ndarray, expected a graph of networkx; of a matrix"):
        from_networkx(matrix, **PI)
    assert len(from_networkx(networkx.from_numpy_array(matrix - numpy.eye(3)), **PI).workers) == 3
