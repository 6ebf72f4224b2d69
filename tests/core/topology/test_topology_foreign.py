"""GraphML, node-link JSON and networkx graphs give the same topology as the YAML file, or say why not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networkx
import pytest

from simcluster.errors import UsageError
from simcluster.topology import Topology, load, loads

YAML = """\
name: small
description: Two machines on a switch.
nodes:
  a: {device: mac-mini-m4, address: 10.0.0.1, port: 52300}
  "7": {device: raspberry-pi-4, straggler: {kind: two-point, probability: 0.1, factor: 10}, gateway: false}
  s: {kind: switch}
links:
  - {between: [a, s], bandwidth: 1 Gbps, latency: 50 us}
  - {between: ["7", s], type: ethernet-100m}
"""


def small() -> Topology:
    return loads(YAML)


def small_graph(flat: bool) -> networkx.Graph[Any]:
    straggler = {"kind": "two-point", "probability": 0.1, "factor": 10}
    keys = {f"straggler.{key}": value for key, value in straggler.items()} if flat else {"straggler": straggler}
    graph: networkx.Graph[Any] = networkx.Graph(name="small", description="Two machines on a switch.")
    graph.add_node("a", device="mac-mini-m4", address="10.0.0.1", port=52300)
    graph.add_node(7, device="raspberry-pi-4", gateway=False, **keys)
    graph.add_node("s", kind="switch")
    graph.add_edge("a", "s", bandwidth="1 Gbps", latency="50 us")
    graph.add_edge(7, "s", type="ethernet-100m")
    return graph


def test_a_networkx_graph_is_a_topology() -> None:
    assert load(small_graph(flat=False)) == load(small_graph(flat=True)) == small()


def test_graphml_that_networkx_writes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "small.graphml"
    networkx.write_graphml(small_graph(flat=True), path)
    assert load(path) == small()
    faster = load(path, overrides={"links.a-s.bandwidth": "10 Gbps"})
    assert faster.links[0].bandwidth_Bps == 1.25e9


@pytest.mark.parametrize("edges", ["edges", "links"])
def test_node_link_json_that_networkx_writes_is_read(tmp_path: Path, edges: str) -> None:
    path = tmp_path / "small.json"
    path.write_text(json.dumps(networkx.node_link_data(small_graph(flat=False), edges=edges)))
    assert load(path) == small()


def test_the_graph_of_a_topology_has_its_nodes_and_links() -> None:
    graph = small().graph
    assert list(graph) == ["a", "7", "s"]
    assert graph.edges["s", "a"]["link"] is small().links[0] or graph.edges["s", "a"]["link"] == small().links[0]
    assert graph.nodes["s"]["node"].kind == "switch"


def refused(path: Path, text: str) -> str:
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        load(path)
    return str(error.value)


def test_wrong_json_is_refused_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    assert f"{path}:1:10: JSON: expected JSON" in refused(path, '{"nodes":')
    assert "found an empty list, expected node-link data" in refused(path, "[]")
    assert "found a mapping of 1, expected node-link data" in refused(path, '{"nodes": []}')
    assert "the key 'nodes' stands twice" in refused(path, '{"nodes": [], "nodes": [], "edges": []}')
    assert "expected JSON: nesting" in refused(path, "[" * 200_000)
    found = refused(path, '{"directed": true, "nodes": [{"id": "a"}, {"id": "a"}, {}], "edges": [{"source": "a"}]}')
    assert "nodes[2]: found an empty mapping, expected an object with id" in found
    assert "edges[0]: found a mapping of 1 (source: 'a'), expected an object with source and target" in found
    assert "found a directed graph" in found
    assert "nodes[1]: found a second node called a" in found


def test_nodes_without_a_name_or_with_the_name_of_another_are_named(tmp_path: Path) -> None:
    json_file, graphml = tmp_path / "x.json", tmp_path / "x.graphml"
    found = refused(json_file, '{"nodes": [{"id": 7}, {"id": "7"}, {"id": null, "name": "b"}], "edges": []}')
    assert "nodes[1]: found a second node called 7: 7 and '7', expected one" in found
    assert "nodes[2]: found a mapping of 2 (id: nothing, name: 'b'), expected an object with id" in found
    whole = '<graphml><graph edgedefault="undirected">{}</graph></graphml>'
    found = refused(graphml, whole.format('<node id="a"/><node id="b"/><node id="a"/>'))
    assert found == f"{graphml}: nodes[2]: found a second node called a, expected one"
    found = refused(graphml, whole.format('<node id="a"/><node/><node id=""/>'))
    assert found.splitlines() == [
        f"{graphml}: nodes[{index}]: found a node without an id, expected its name as id" for index in (1, 2)
    ]
    graph: networkx.Graph[Any] = networkx.Graph([((0, 1), "0_1")])
    with pytest.raises(UsageError, match=r"nodes\[1\]: found a second node called 0_1: \(0, 1\) and '0_1'"):
        load(graph)


def test_a_file_of_d3_and_lists_as_ids_are_named_or_read(tmp_path: Path) -> None:
    old = '{"nodes": [{"name": "a"}, {"name": "b"}], "links": [{"source": 0, "target": 1}]}'
    assert "nodes: found no node with an id, as in d3 before version 4" in refused(tmp_path / "x.json", old)
    grid: networkx.Graph[Any] = networkx.grid_2d_graph(2, 2)
    (tmp_path / "grid.json").write_text(json.dumps(networkx.node_link_data(grid, edges="links")))
    numbers: dict[str, Any] = {"device": "raspberry-pi-5", "bandwidth": "1 Gbps", "latency": "1 ms"}
    assert load(tmp_path / "grid.json", **numbers).links == load(grid, **numbers).links
    own = {"nodes": {"a": {"device": "raspberry-pi-5"}}}
    (tmp_path / "own.json").write_text(json.dumps(own))
    assert load(tmp_path / "own.json").workers == ["a"]


def test_problems_inside_a_json_file_name_the_file_and_the_key(tmp_path: Path) -> None:
    text = '{"nodes": [{"id": "a", "device": "mac-mini"}], "edges": []}'
    assert refused(tmp_path / "x.json", text).startswith(f"{tmp_path / 'x.json'}: nodes.a.device: found 'mac-mini'")


def test_wrong_graphml_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "x.graphml"
    assert f"{path}:1:" in refused(path, "<graphml")
    assert "expected GraphML" in refused(path, "<html></html>")
    directed: networkx.DiGraph[str] = networkx.DiGraph([("a", "b")])
    assert "found a directed graph" in refused(path, "\n".join(networkx.generate_graphml(directed)))


def test_graphml_of_groups_is_read_with_the_nodes_and_edges_inside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inner = (
        '<graph edgedefault="undirected"><node id="g::a"/><node id="g::b"/><edge source="g::a" target="g::b"/></graph>'
    )
    whole = f'<graphml><graph edgedefault="undirected"><node id="g">{inner}</node><node id="c"/>{{}}</graph></graphml>'
    path = tmp_path / "x.graphml"
    path.write_text(whole.format('<edge source="c" target="g::a"/>'))
    net = load(path, device="raspberry-pi-5", bandwidth="1 Gbps", latency="1 ms")
    assert net.workers == ["c", "g__a", "g__b"]
    assert [link.name for link in net.links] == ["c-g__a", "g__a-g__b"]
    assert "left out: 1 group of nodes without edges" in caplog.text
    assert "found a hyperedge, expected edges with two ends" in refused(path, whole.format("<hyperedge/>"))


def test_graphml_with_entities_is_refused_before_it_is_read(tmp_path: Path) -> None:
    bomb = '<!DOCTYPE x [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><graphml>&b;</graphml>'
    assert "found an entity, expected GraphML without entities" in refused(tmp_path / "x.graphml", bomb)


def test_a_directed_graph_is_refused() -> None:
    with pytest.raises(UsageError, match="directed graph"):
        load(networkx.DiGraph([("a", "b")]))
