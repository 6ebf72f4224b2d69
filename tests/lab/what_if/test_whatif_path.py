"""The critical path of runs whose path can be worked out by hand, and what carried a message while others did, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from simcluster_backends.sim.cluster import SimCluster

from simcluster.lab.what_if.critical_path import CarriedBytes, CriticalPath, critical_path
from simcluster.runs.spans import Span
from simcluster.topology import Topology
from simcluster.transport import Cost, Transport
from tests.support.clusters import chain, pair, star, with_nodes


def of(topology: Topology, spans: Sequence[tuple[int, Span]]) -> dict[tuple[str, str], float]:
    return seconds(critical_path(spans, topology))


def seconds(path: CriticalPath) -> dict[tuple[str, str], float]:
    return {(part.kind, part.where): pytest.approx(part.seconds, abs=1e-8) for part in path.parts}


def ran(topology: Topology, *bodies: object) -> CriticalPath:
    """The path of a run in the simulator; its legs touch each other, from the end to the start."""
    cluster = SimCluster(topology)
    for result in cluster.run(bodies):
        assert not isinstance(result, BaseException), result
    spans = [(node.rank, span) for node in cluster.members for span in node.recorder.record.spans]
    path = critical_path(spans, topology)
    assert path.legs[0].start_s == pytest.approx(0, abs=1e-8)
    assert path.legs[-1].end_s == path.end_s
    assert all(a.end_s == pytest.approx(b.start_s) for a, b in zip(path.legs, path.legs[1:], strict=False))
    assert sum(part.share for part in path.parts) == pytest.approx(1)
    return path


def message(size_bytes: int) -> torch.Tensor:
    return torch.empty(size_bytes, dtype=torch.uint8, device="meta")


async def work(node: Transport, seconds: float) -> None:
    await node.compute(lambda: None, cost=Cost(flops=seconds * 1e9))  # IDEAL does 1 GFLOP/s


def test_a_message_waited_for_leads_to_its_sender_and_what_that_did_before() -> None:
    # n0 works 2 s and sends 1 MB over 1 MB/s with 0.5 s of latency: 2 + 1 + 0.5. n1 works 1 s meanwhile, then 3 s.
    topology = pair(1e6, latency_s=0.5)
    spans = [
        (0, Span("compute", 0.0, 2.0, -1, "", 0)),
        (0, Span("send", 2.0, 3.0, 1, "t", 1_000_000)),
        (1, Span("compute", 0.0, 1.0, -1, "", 0)),
        (1, Span("recv", 1.0, 3.5, 0, "t", 1_000_000)),
        (1, Span("compute", 3.5, 6.5, -1, "", 0)),
    ]
    path = critical_path(spans, topology)
    assert [(leg.kind, leg.where, leg.start_s, leg.end_s) for leg in path.legs] == [
        ("compute", "n0", 0.0, 2.0),
        ("link", "n0-n1", 2.0, 3.0),
        ("latency", "n0-n1", 3.0, 3.5),
        ("compute", "n1", 3.5, 6.5),
    ]
    assert path.parts[0].share == pytest.approx(3 / 6.5)
    assert path.parts[2].between == ("n0", "n1")


def test_a_message_that_was_there_already_holds_nobody_up() -> None:
    # The message is there at 1.0, and n1 works until 4: the path is n1's work alone.
    spans = [
        (0, Span("send", 0.0, 1.0, 1, "t", 1_000_000)),
        (1, Span("compute", 0.0, 4.0, -1, "", 0)),
        (1, Span("recv", 4.0, 4.0, 0, "t", 1_000_000)),
        (1, Span("compute", 4.0, 5.0, -1, "", 0)),
    ]
    assert of(pair(1e6), spans) == {("compute", "n1"): 5.0}


def test_time_in_which_a_node_waited_for_nothing_that_a_trace_has_is_told_as_such() -> None:
    spans = [(0, Span("compute", 0.0, 1.0, -1, "", 0)), (0, Span("compute", 3.0, 4.0, -1, "", 0))]
    assert of(pair(), spans) == {("compute", "n0"): 2.0, ("idle", "n0"): 2.0}


def test_the_path_to_an_earlier_moment_of_another_node_ends_there() -> None:
    spans = [(0, Span("compute", 0.0, 1.0, -1, "", 0)), (1, Span("compute", 0.0, 9.0, -1, "", 0))]
    assert seconds(critical_path(spans, pair(), end_s=1.0, end_rank=0)) == {("compute", "n0"): 1.0}


def test_nothing_done_is_an_empty_path() -> None:
    assert critical_path([], pair()).parts == []


def test_the_simulators_trace_of_two_nodes_is_followed_there_and_back() -> None:
    # 1 s of work on n0, 2 MB at 1 MB/s and 0.25 s of latency, 3 s of work on n1, and an answer of 1 MB.
    async def asks(node: Transport) -> None:
        await work(node, 1.0)
        await node.send(1, "there", message(2_000_000))
        await node.recv(1, "back")

    async def answers(node: Transport) -> None:
        await node.recv(0, "there")
        await work(node, 3.0)
        await node.send(0, "back", message(1_000_000))

    found = ran(pair(1e6, latency_s=0.25), asks, answers)
    headers_s = 1e-3  # a message's header is some bytes at 1 MB/s
    parts = {(part.kind, part.where): part.seconds for part in found.parts}
    assert parts.pop(("link", "n0-n1")) == pytest.approx(3.0, abs=headers_s)
    assert parts == {
        ("compute", "n0"): pytest.approx(1.0),
        ("compute", "n1"): pytest.approx(3.0),
        ("latency", "n0-n1"): pytest.approx(0.5),
    }


def test_of_a_route_of_two_links_the_slower_is_what_was_waited_for() -> None:
    # n0-n1 carries 1 MB/s, n1-n2 4 MB/s: 1 MB takes 1 s, and the latency of both, 0.1 s each.
    topology = chain(3, 1e6, latency_s=0.1)
    topology = replace(topology, links=(topology.links[0], replace(topology.links[1], bandwidth_Bps=4e6)))

    async def sends(node: Transport) -> None:
        await node.send(2, "t", message(1_000_000))

    async def nothing(node: Transport) -> None: ...

    async def receives(node: Transport) -> None:
        await node.recv(0, "t")

    parts = {(part.kind, part.where): part.seconds for part in ran(topology, sends, nothing, receives).parts}
    assert parts.pop(("link", "n0-n1")) == pytest.approx(1.0, abs=1e-3)
    assert parts == {("latency", "n0-n1"): pytest.approx(0.1), ("latency", "n1-n2"): pytest.approx(0.1)}


async def pushes(node: Transport) -> None:
    await node.send(0, "push", message(1_000_000))


async def takes_three(node: Transport) -> None:
    for source in (1, 2, 3):
        await node.recv(source, "push")


def test_where_three_push_to_one_the_link_of_that_one_is_waited_for_though_all_links_are_alike() -> None:
    # 3 MB through n0's link of 1 MB/s: 3 s, while each worker's own link could have done it in 1 s.
    found = ran(star(4, 1e6, 0.0), takes_three, pushes, pushes, pushes)
    assert {(part.kind, part.where) for part in found.parts} == {("link", "n0-sw")}
    assert found.end_s == pytest.approx(3.0, abs=1e-2)


def test_a_nodes_own_bandwidth_is_waited_for_if_it_is_less_than_its_links() -> None:
    topology = star(4, 1e6, 0.0)
    topology = replace(topology, nodes=topology.nodes | {"n0": replace(topology.nodes["n0"], host_bandwidth_Bps=5e5)})
    found = ran(topology, takes_three, pushes, pushes, pushes)
    assert {(part.kind, part.where) for part in found.parts} == {("nic", "n0")}


def test_both_ways_of_a_half_duplex_link_are_one_load_and_of_a_full_one_two() -> None:
    # 1 MB there and 3 MB back in the same second over n0-n1; 2 MB over n1-n2, of the same bandwidth.
    messages = [
        (0, Span("send", 0, 1, 2, "", 1_000_000)),
        (1, Span("send", 0, 1, 0, "", 3_000_000)),
        (1, Span("send", 0, 1, 2, "", 1_000_000)),
    ]
    topology = chain(3, 1e7)
    busiest = CarriedBytes(topology, messages).busiest("n0", "n2", 0.0, 1.0)
    assert busiest is not None
    assert busiest.name == "n1-n2"
    half = replace(topology, links=tuple(replace(link, duplex="half") for link in topology.links))
    busiest = CarriedBytes(half, messages).busiest("n0", "n2", 0.0, 1.0)
    assert busiest is not None
    assert busiest.name == "n0-n1"
    assert CarriedBytes(with_nodes(topology), messages).busiest("n0", "n0", 0.0, 1.0) is None
