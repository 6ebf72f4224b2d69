"""The path over the hub of a star, against the general one: the same channels and the same bits."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st
from simcluster_backends.sim.cluster import SimCluster
from simcluster_backends.sim.network import routes
from simcluster_backends.sim.network.routes import Way

from simcluster.topology import Device, Link, Node, Topology

Ends = st.tuples(st.floats(1.0, 1e11), st.just(0.0) | st.floats(1e-9, 1.0), st.booleans())


def ways(topology: Topology, model: str) -> list[tuple[object, ...]]:
    """Return each way between two workers, with the names of its channels."""
    cluster, found = SimCluster(topology, model=model), []
    for source in topology.workers:
        for target in topology.workers:
            if source != target:
                way: Way = cluster.routes.way(source, target)
                uses = [(channel.name, channel.capacity_Bps, use) for channel, use in way.route.uses]
                found.append((uses, way.route.bound_Bps, way.route.weight, way.latency_s, way.is_plain))
    return found


@given(st.lists(Ends, min_size=2, max_size=5), st.sampled_from(["maxmin", "lv08"]))
def test_a_way_over_the_hub_has_the_bits_of_the_general_one(ends: list[tuple[float, float, bool]], model: str) -> None:
    names = [f"n{rank}" for rank in range(len(ends))]
    nodes = {name: Node(name, Device("device", 1e9)) for name in names} | {"sw": Node("sw")}
    pairs = [(name, "sw") if forward else ("sw", name) for name, (_, _, forward) in zip(names, ends, strict=True)]
    links = [Link(*pair, *link[:2]) for pair, link in zip(pairs, ends, strict=True)]
    topology = Topology("star", nodes, tuple(links))
    found = ways(topology, model)
    with patch.object(routes, "spoke_links", lambda topology: None):
        assert ways(topology, model) == found
