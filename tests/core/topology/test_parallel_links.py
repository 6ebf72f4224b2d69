"""Several links between two nodes: names, the choice of each rule, links that carry nothing, and refusals."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from typing import Any

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcluster.errors import UsageError
from simcluster.runs.record import NodeRecord, RunRecord
from simcluster.runs.summary import link_use
from simcluster.topology import Topology, describe, load, loads
from simcluster.topology.idle_links import MOST_WORKERS, idle_links
from simcluster.topology.model.parallel import RULES
from tests.support.plans import plan

ETHERNET = {"between": ["a", "b"], "bandwidth": "8 Mbps", "latency": "1 ms", "subnet": "192.168.1.0/24"}
THUNDERBOLT = {"between": ["b", "a"], "bandwidth": "80 Mbps", "latency": "4 ms", "subnet": "10.0.0.0/24"}


def macs(parallel: Any = "shortest", *links: dict[str, Any], **addresses: str) -> dict[str, Any]:
    keys = {name: {"address": addresses[name]} if name in addresses else {} for name in ("a", "b")}
    nodes = {name: {"device": "mac-mini-m4", **keys[name]} for name in ("a", "b")}
    return {"nodes": nodes, "links": [*(links or (ETHERNET, THUNDERBOLT))], "parallel": parallel}


def chosen(document: dict[str, Any]) -> list[tuple[float, list[tuple[str, float]]]]:
    routes = loads(document).routes("a", "b")
    return [(most_bytes, [(hop.link.name, round(hop.share, 9)) for hop in hops]) for most_bytes, hops in routes]


def one_problem(document: dict[str, Any], **overrides: Any) -> str:
    with pytest.raises(UsageError) as caught:
        loads(document, overrides=overrides)
    (problem,) = caught.value.problems
    return str(problem)


@pytest.mark.parametrize(
    ("rule", "routes"),
    [
        # A packet of 1500 bytes takes 1 + 1.5 ms over Ethernet, 4 + 0.15 ms over Thunderbolt.
        ("shortest", [(inf, [("a-b#1", 1.0)])]),
        (["a-b#2"], [(inf, [("b-a#2", 1.0)])]),
        (["b-a#2", "a-b#1"], [(inf, [("b-a#2", 1.0)])]),
        # 0.001 + x / 1e6 = 0.004 + x / 1e7 at x = 3333.3.
        ("size", [(3333, [("a-b#1", 1.0)]), (inf, [("b-a#2", 1.0)])]),
        # 1 and 10 MB/s.
        ("stripe", [(inf, [("a-b#1", round(1 / 11, 9)), ("b-a#2", round(10 / 11, 9))])]),
    ],
)
def test_each_rule_chooses_among_two_links(rule: Any, routes: Any) -> None:
    assert chosen(macs(rule)) == routes


def test_by_address_the_link_is_that_of_the_lower_rank_to_which_real_nodes_connect() -> None:
    assert chosen(macs("address", a="10.0.0.1", b="192.168.1.2")) == [(inf, [("b-a#2", 1.0)])]
    assert chosen(macs("address", a="192.168.1.1", b="10.0.0.2")) == [(inf, [("a-b#1", 1.0)])]
    assert chosen(macs("address", b="10.0.0.2")) == [(inf, [("b-a#2", 1.0)])]
    split = macs("address", a="10.0.0.1")
    split["nodes"]["b"]["nproc_per_node"] = 2
    assert [hop.link.name for hop in loads(split).route("a", "b_1")] == ["b-a#2", "b-b_1"]


def test_an_address_that_chooses_no_link_is_refused() -> None:
    assert "found no address of a and b" in one_problem(macs("address"))
    assert "found mini.local, in no subnet of the links between a and b" in one_problem(macs("address", a="mini.local"))
    bad = one_problem(macs("shortest", {**ETHERNET, "subnet": "10.0.0.1/24"}))
    assert "expected a network of addresses, such as 10.0.0.0/24" in bad


def test_two_equal_cables_have_names_and_share_a_stripe_evenly() -> None:
    assert chosen(macs("stripe", ETHERNET, ETHERNET)) == [(inf, [("a-b#1", 0.5), ("a-b#2", 0.5)])]
    assert idle_links(loads(macs("shortest", ETHERNET, ETHERNET))) == ["a-b#2"]


def test_a_third_link_that_is_never_the_fastest_carries_nothing() -> None:
    # At every size one of the two others is faster than 2 MB/s after 3.9 ms.
    between = {"between": ["a", "b"], "bandwidth": "16 Mbps", "latency": "3.9 ms"}
    cluster = loads(macs("size", ETHERNET, between, THUNDERBOLT))
    assert idle_links(cluster) == ["a-b#2"]
    text = describe(cluster)
    assert "  a to b: up to 3.333 kB over a-b#1, larger over b-a#3" in text
    assert "no message takes a-b#2: all routes use other links" in text


def test_of_two_switches_the_one_that_routes_avoid_is_named_within_a_bound() -> None:
    def two_networks(size: int) -> Topology:
        names = [f"n{i}" for i in range(size)]
        nodes = {name: {"device": "mac-mini-m4"} for name in names} | {s: {"kind": "switch"} for s in ("lan", "fast")}
        kinds = {"lan": "ethernet-1g", "fast": "ethernet-10g"}
        return loads(
            {"nodes": nodes, "links": [{"between": [n, s], "type": t} for n in names for s, t in kinds.items()]}
        )

    assert idle_links(two_networks(2)) == ["n0-lan", "n1-lan"]
    assert idle_links(two_networks(MOST_WORKERS + 1)) == []


def test_a_bare_name_of_several_links_is_refused_with_the_choices() -> None:
    choices = "one of a-b#1 and b-a#2: several links join these nodes"
    assert choices in one_problem(macs(["a-b"]))
    assert choices in one_problem(macs(), **{"links.a-b.bandwidth": "1 Gbps"})
    with pytest.raises(AssertionError, match=choices):
        plan(loads(macs()), "kind: cut, link: a-b, at: 1 s, for: 1 s")
    assert "did you mean 'a-b#1'?" in one_problem(macs(["a-b#3"]))
    assert "expected one of several links between two nodes" in one_problem(macs(["a-b"], ETHERNET))
    assert "expected one of shortest, address, size, stripe, or a list" in one_problem(macs("fast"))
    assert "found 65 links between a and b, expected at most 64" in one_problem(macs("size", *[ETHERNET] * 65))


def test_faults_and_overrides_of_one_link_leave_the_other_alone() -> None:
    wide = loads(macs(), overrides={"links.a-b#2.bandwidth": "800 Mbps"})
    assert [link.bandwidth_Bps for link in wide.links] == [1e6, 1e8]
    (cut,) = plan(wide, "kind: cut, link: a-b#2, at: 1 s, for: 1 s")
    assert [cut.hits(hop) for hop in loads(macs("stripe")).route("a", "b")] == [False, True]  # type: ignore[attr-defined]


def test_a_striped_or_sized_message_counts_on_the_links_that_it_took() -> None:
    def carried(rule: str, **over: Any) -> list[float]:
        record = RunRecord([NodeRecord(0, "a", sent_to={1: [2, 1_100_000]}, **over), NodeRecord(1, "b")], 1.0, 1.0)
        return [row["bytes"] for row in link_use(loads(macs(rule)), record).values()]

    assert carried("stripe") == [100_000, 1_000_000]
    assert carried("size", sent_over={1: [100, 1_099_900]}) == [100, 1_099_900]


def test_multigraphs_graphml_and_node_link_files_keep_both_links(tmp_path: Path) -> None:
    graph: networkx.MultiGraph[str] = networkx.MultiGraph()
    graph.add_nodes_from(["a", "b"], device="x86-laptop")
    graph.add_edges_from([("a", "b", {"type": "wan"}), ("a", "b", {"type": "ethernet-1g"})])
    networkx.write_graphml(graph, tmp_path / "x.graphml")
    (tmp_path / "x.json").write_text(json.dumps(networkx.node_link_data(graph, edges="edges")))
    for source in (graph, tmp_path / "x.graphml", tmp_path / "x.json"):
        cluster = load(source)
        assert [(link.name, link.type) for link in cluster.links] == [("a-b#1", "wan"), ("a-b#2", "ethernet-1g")]
        assert cluster.graph.number_of_edges() == 2
        assert idle_links(cluster) == ["a-b#1"]


@given(
    st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 1000)), min_size=1, max_size=5),
    st.integers(0, 10**7),
)
def test_by_size_a_message_takes_the_link_with_the_smaller_sum(links: list[tuple[int, int]], size: int) -> None:
    made = [
        {"between": ["a", "b"], "bandwidth": f"{bandwidth} kB/s", "latency": f"{latency} us"}
        for bandwidth, latency in links
    ]
    cluster = loads(macs("size", *made))
    took_s = cluster.route_latency_s("a", "b", size) + size / cluster.route_bandwidth_Bps("a", "b", size)
    sums_s = [link.latency_s + size / link.bandwidth_Bps for link in cluster.links]
    assert took_s == pytest.approx(min(sums_s), rel=1e-12)


@given(st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 1000)), min_size=2, max_size=5), st.integers(0, 10**7))
def test_with_one_link_per_pair_all_rules_are_one(links: list[tuple[int, int]], size: int) -> None:
    names = [f"n{i}" for i in range(len(links))]
    nodes: dict[str, Any] = {name: {"device": "mac-mini-m4"} for name in names} | {"sw": {"kind": "switch"}}
    made = [
        {"between": [name, "sw"], "bandwidth": f"{bandwidth} kB/s", "latency": f"{latency} us"}
        for name, (bandwidth, latency) in zip(names, links, strict=True)
    ]
    made.append({"between": names[:2], "bandwidth": "500 kB/s", "latency": "500 us"})  # a way round the switch
    each = [loads({"nodes": nodes, "links": made, "parallel": rule}) for rule in RULES]
    for a, b in [names[:2], names[-2:]]:
        assert len({cluster.route(a, b, size) for cluster in each}) == 1
        assert all(cluster.routes(a, b) == [(inf, each[0].route(a, b))] for cluster in each)
