"""What acknowledgements take of the way back, as a link's `ack_share` says: 1 MB each way on 1 MB/s, no latency."""

from __future__ import annotations

import pytest
from simcluster_backends.sim.plain_flows import finish_times

from simcluster.topology import Link, Topology, describe
from simcluster.topology.plain_flows import PlainFlow
from tests.support.clusters import star

M = 1_000_000


def pair(ack_share: float, duplex: str = "full") -> Topology:
    nodes = {name: node for name, node in star(2).nodes.items() if node.is_worker}
    return Topology("pair", nodes, (Link("n0", "n1", 1.0 * M, 0.0, duplex, ack_share=ack_share),))  # type: ignore[arg-type]


def test_they_are_told_where_a_topology_is_described() -> None:
    assert "acknowledgements take 0.022 of the way back" in describe(pair(0.022))
    assert "acknowledgements" not in describe(pair(0.0))


THERE, BACK = PlainFlow("n0", "n1", M), PlainFlow("n1", "n0", M)


def test_one_way_alone_feels_nothing() -> None:
    assert finish_times(pair(0.5), [THERE]) == [1.0]


def test_both_ways_at_once_leave_room_for_each_others_acknowledgements() -> None:
    # x + share x = 1: 1 MB takes 1 + share seconds
    assert finish_times(pair(0.022), [THERE, BACK]) == pytest.approx([1.022, 1.022], rel=1e-12)


def test_the_way_back_alone_again_goes_at_full_rate() -> None:
    # x + 0.25 x = 1 for 1 s: 0.8 MB each; the second, begun at 0, has 0.5 MB more and is alone then
    flows = [PlainFlow("n0", "n1", 0.8 * M, 0.0), PlainFlow("n1", "n0", 1.3 * M, 0.0)]
    assert finish_times(pair(0.25), flows) == pytest.approx([1.0, 1.5], rel=1e-12)


def test_on_one_medium_acknowledgements_come_out_of_the_same_bandwidth() -> None:
    assert finish_times(pair(0.1, "half"), [THERE]) == pytest.approx([1.1], rel=1e-12)


def test_a_way_over_two_links_is_acknowledged_over_both() -> None:
    links = tuple(Link(f"n{i}", "sw", 1.0 * M, 0.0, ack_share=0.1) for i in range(3))
    cluster = Topology("star", star(3).nodes, links)
    # n0 to n1 and n1 to n2 meet on n1's link only: data in beside acknowledgements in, x + 0.1 y = 1 and y + 0.1 x = 1
    flows = [PlainFlow("n0", "n1", M, 0.0), PlainFlow("n1", "n2", M, 0.0)]
    assert finish_times(cluster, flows) == pytest.approx([1.1, 1.1], rel=1e-12)
