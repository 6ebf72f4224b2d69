"""Routes are shortest, the same every time, the same both ways, and go only where packets may."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simcluster_backends.sim.plain_flows import finish_times

from simcluster.topology import Hop, Link, Topology, complete, loads, ring, star, torus
from simcluster.topology.model.routing import Routes, cut_off
from simcluster.topology.plain_flows import PlainFlow

Edges = list[tuple[str, str, float, float]]


def routes(edges: Edges, names: str | None = None, not_through: str = "") -> Routes:
    order = list(names) if names else sorted({end for edge in edges for end in edge[:2]})
    return Routes(order, edges, frozenset(order) - set(not_through))


def test_a_route_is_the_one_over_which_a_packet_arrives_first() -> None:
    # Direct: 10 ms. By b: 2 x (1 ms + 1500 B / 1 MB/s = 1.5 ms) = 5 ms.
    edges = [("a", "c", 10e-3, 1e9), ("a", "b", 1e-3, 1e6), ("b", "c", 1e-3, 1e6)]
    assert routes(edges).path("a", "c") == ["a", "b", "c"]
    # At 300 kB/s a packet takes 5 ms more on each hop: 12 ms.
    slow = [edges[0], ("a", "b", 1e-3, 300e3), ("b", "c", 1e-3, 300e3)]
    assert routes(slow).path("a", "c") == ["a", "c"]


def test_hops_say_which_way_a_link_is_taken() -> None:
    topology = loads(
        {
            "nodes": {name: {"device": "x86-laptop"} for name in "abc"},
            "links": [{"between": ["b", "a"], "type": "wan"}, {"between": ["b", "c"], "type": "wan"}],
        }
    )
    first, second = topology.links
    assert topology.route("a", "c") == (Hop(first, False), Hop(second, True))
    assert topology.route("c", "a") == (Hop(second, False), Hop(first, True))
    assert [(hop.source, hop.target) for hop in topology.route("a", "c")] == [("a", "b"), ("b", "c")]
    assert topology.route("a", "a") == ()
    assert topology.route_bandwidth_Bps("a", "a") == math.inf


def test_latency_of_a_route_is_the_sum_of_its_links() -> None:
    topology = star(3, latency="0.1 us", bandwidth="1 Gbps")
    assert topology.route_latency_s("n0", "n2") == 0.2e-6
    assert topology.route_bandwidth_Bps("n0", "n2") == 125e6


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="no node 'n9': did you mean"):
        star(3).route("n0", "n9")


def test_a_spare_switch_has_no_route() -> None:
    topology = loads("nodes: {a: {device: x86-laptop}, s: {kind: switch}}")
    with pytest.raises(ValueError, match="no path from a to s"):
        topology.route("a", "s")


def test_routes_of_regular_topologies_have_their_textbook_lengths() -> None:
    hops = {
        "star": {len(star(6).route(a, b)) for a, b in itertools.combinations(star(6).workers, 2)},
        "complete": {len(complete(5).route(a, b)) for a, b in itertools.combinations(complete(5).workers, 2)},
    }
    assert hops == {"star": {2}, "complete": {1}}
    # The diameter of a ring of n is floor(n/2), of an r x c torus floor(r/2) + floor(c/2).
    assert max(len(ring(7).route("n0", name)) for name in ring(7).workers) == 3
    assert max(len(torus(4, 5).route("n0_0", name)) for name in torus(4, 5).workers) == 4


@pytest.mark.slow
def test_a_star_of_thousands_needs_no_search() -> None:
    topology = star(5000)
    assert all(len(topology.route("n0", name)) == 2 for name in topology.workers[1:])
    assert topology.route("n17", "n4711")[1].target == "n4711"
    assert not topology._routing._trees


@st.composite
def connected(draw: st.DrawFn) -> Topology:
    """Up to nine nodes on a random tree with more links, whose lengths often tie; some are no gateways."""
    size = draw(st.integers(2, 9))
    names = [f"n{index}" for index in range(size)]
    pairs = {(draw(st.integers(0, index - 1)), index) for index in range(1, size)}
    pairs |= draw(st.sets(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)), max_size=12))
    unique = sorted({(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]})
    order = draw(st.permutations(unique))
    numbers = st.tuples(st.sampled_from([1e6, 2e6]), st.sampled_from([0.0, 1e-3, 2e-3, 0.1, 0.2, 0.3]))
    links = tuple(Link(names[a], names[b], *draw(numbers)) for a, b in order)
    plain = star(size)
    gates = draw(st.sets(st.sampled_from(names), max_size=2))
    nodes = {name: replace(plain.nodes[name], gateway=name not in gates) for name in names}
    return Topology("random", nodes, links)


def simple_paths(topology: Topology, a: str, b: str) -> list[list[str]]:
    paths = networkx.all_simple_paths(topology.graph, a, b)
    return [path for path in paths if all(topology.nodes[name].gateway for name in path[1:-1])]


def packet_s(topology: Topology, path: list[str]) -> int:
    links = [topology.graph.edges[pair]["link"] for pair in itertools.pairwise(path)]
    return sum(round((link.latency_s + 1500 / link.bandwidth_Bps) * 1e12) for link in links)


@settings(deadline=None, max_examples=60)
@given(connected())
def test_every_route_is_the_first_of_the_shortest_simple_paths(topology: Topology) -> None:
    order = list(topology.nodes)
    for a, b in itertools.combinations(order, 2):
        paths = simple_paths(topology, a, b)
        if not paths:
            with pytest.raises(ValueError, match="no path"):
                topology.route(a, b)
            continue
        best = min(paths, key=lambda path: (packet_s(topology, path), len(path), [order.index(n) for n in path]))
        assert [a, *(hop.target for hop in topology.route(a, b))] == best


@settings(deadline=None, max_examples=60)
@given(connected())
def test_the_way_back_is_the_way_there_reversed(topology: Topology) -> None:
    for a, b in itertools.permutations(topology.nodes, 2):
        try:
            there = topology.route(a, b)
        except ValueError:
            continue
        assert topology.route(b, a) == tuple(Hop(hop.link, not hop.forward) for hop in reversed(there))
        assert topology.route_latency_s(a, b) == topology.route_latency_s(b, a)


@settings(deadline=None, max_examples=100)
@given(connected())
def test_who_is_cut_off_agrees_with_the_routes(topology: Topology) -> None:
    gateways = frozenset(node.name for node in topology.nodes.values() if node.gateway)
    aside = cut_off(topology.workers, [(link.a, link.b) for link in topology.links], gateways)
    workers = topology.workers
    lacking = {a for a in workers if any(topology._routing.path(a, b) is None for b in workers)}
    assert set(aside) <= lacking
    assert bool(aside) == bool(lacking)


# equal ways, shared out


def spine(leaves: int, spines: int, workers: int, routing: str = "ecmp") -> Topology:
    """*workers* on each leaf, every leaf joined to every spine: as many equal ways between leaves as spines."""
    nodes = {f"n{leaf}_{number}": {"flops": "1 GFLOP/s"} for leaf in range(leaves) for number in range(workers)}
    switches = [f"leaf{leaf}" for leaf in range(leaves)] + [f"spine{number}" for number in range(spines)]
    nodes |= {switch: {"kind": "switch"} for switch in switches}
    pairs = [[f"n{leaf}_{number}", f"leaf{leaf}"] for leaf in range(leaves) for number in range(workers)]
    pairs += [[f"leaf{leaf}", f"spine{number}"] for leaf in range(leaves) for number in range(spines)]
    links = [{"between": pair, "bandwidth": "1 MB/s", "latency": "0 s"} for pair in pairs]
    return loads({"name": "spine", "routing": routing, "nodes": nodes, "links": links})


def spine_of(topology: Topology, a: str, b: str) -> str:
    return next(hop.target for hop in topology.route(a, b) if hop.target.startswith("spine"))


def test_ecmp_uses_all_equal_ways_and_about_as_often() -> None:
    topology = spine(2, 4, 20)
    used = [spine_of(topology, f"n0_{a}", f"n1_{b}") for a in range(20) for b in range(20)]
    # 400 pairs over 4 spines: 100 each, give or take 4 deviations of 8.7
    assert all(abs(used.count(f"spine{number}") - 100) < 35 for number in range(4))
    shortest = spine(2, 4, 20, "shortest")
    assert {spine_of(shortest, f"n0_{a}", f"n1_{b}") for a in range(20) for b in range(20)} == {"spine0"}


def test_ecmp_takes_the_same_way_every_time_and_in_every_process() -> None:
    used = [spine_of(spine(2, 4, 4), f"n0_{number}", f"n1_{number}") for number in range(4)]
    assert used == [spine_of(spine(2, 4, 4), f"n0_{number}", f"n1_{number}") for number in range(4)]
    assert used == ["spine0", "spine1", "spine2", "spine1"]


def test_flows_on_different_spines_do_not_share() -> None:
    flows = [PlainFlow("n0_0", "n1_0", 1e6), PlainFlow("n0_1", "n1_1", 1e6)]
    assert finish_times(spine(2, 4, 2), flows) == [1.0, 1.0]
    assert finish_times(spine(2, 4, 2, "shortest"), flows) == [2.0, 2.0]


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(connected())
def test_an_ecmp_route_is_one_of_the_best_and_goes_back_as_it_came(topology: Topology) -> None:
    spread = replace(topology, routing="ecmp")
    for a, b in itertools.combinations(topology.nodes, 2):
        paths = simple_paths(topology, a, b)
        if not paths:
            continue
        best = min((packet_s(topology, path), len(path)) for path in paths)
        path = [a, *(hop.target for hop in spread.route(a, b))]
        assert path in [path for path in paths if (packet_s(topology, path), len(path)) == best]
        assert spread.route(b, a) == tuple(Hop(hop.link, not hop.forward) for hop in reversed(spread.route(a, b)))


# routes that the file lays


def test_a_route_of_the_file_is_taken_both_ways_and_others_as_before() -> None:
    laid = replace(spine(2, 4, 2, "shortest"), paths=(("n0_1", "leaf0", "spine3", "leaf1", "n1_1"),))
    assert spine_of(laid, "n0_1", "n1_1") == spine_of(laid, "n1_1", "n0_1") == "spine3"
    assert spine_of(laid, "n0_0", "n1_0") == "spine0"
    flows = [PlainFlow("n0_0", "n1_0", 1e6), PlainFlow("n0_1", "n1_1", 1e6)]
    assert finish_times(laid, flows) == [1.0, 1.0]
