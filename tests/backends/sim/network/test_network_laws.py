"""What holds on every network at every event: no link overloaded, every flow has a bottleneck, no byte lost; and what
changes no time: names, order, a link cut in two, all numbers scaled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simcluster_backends.sim.loop.clock import Clock
from simcluster_backends.sim.network.fairshare import Channel, Demand
from simcluster_backends.sim.network.flows import Flow, FlowRoute, Network
from simcluster_backends.sim.network.models import MODELS
from simcluster_backends.sim.network.routes import ChannelRoutes
from simcluster_backends.sim.plain_flows import _launch, finish_times

from simcluster.topology import Link, Node, Topology
from simcluster.topology.model.conditions import Background, RateTrace
from simcluster.topology.plain_flows import PlainFlow
from tests.support.clusters import IDEAL

M = 1e6
CLOSE = 1e-9

Flows = list[PlainFlow]


@st.composite
def trees(draw: st.DrawFn, rough: bool = False) -> Topology:
    """Two to seven nodes on a random tree: one way between any two. *rough* with all kinds of links."""
    size = draw(st.integers(2, 7))
    names = [f"n{index}" for index in range(size)]
    nodes = {name: Node(name, IDEAL) for name in names}
    if rough:
        nodes["n0"] = replace(nodes["n0"], host_bandwidth_Bps=draw(st.sampled_from([float("inf"), 1.5 * M])))
    links = []
    for index in range(1, size):
        fields: dict[str, Any] = {"duplex": draw(st.sampled_from(["full", "full", "half", "free"]))}
        if rough:
            fields |= draw(st.sampled_from(CONDITIONS))
        rate_Bps = draw(st.sampled_from([0.3 * M, 1 * M, 2.5 * M]))
        latency_s = draw(st.sampled_from([0.0, 0.01, 0.25]))
        links.append(Link(names[draw(st.integers(0, index - 1))], names[index], rate_Bps, latency_s, **fields))
    return Topology("tree", nodes, tuple(links))


CONDITIONS: list[dict[str, Any]] = [
    {},
    {"duplex": "half", "medium": "air"},
    {"duplex": "half", "medium": "air", "ack_share": 0.1},
    {"duplex": "full", "background": Background(0.4 * M)},
    {"duplex": "full", "background": Background(3 * M, 0.5, 0.5)},
    {"duplex": "full", "trace": RateTrace(((0.0, M), (0.5, 0.0), (0.75, 0.2 * M)), 1.0)},
    {"loss": 0.01},
    {"ack_share": 0.022},
]


@st.composite
def flows_on(draw: st.DrawFn, topology: Topology) -> Flows:
    names = list(topology.nodes)
    found = []
    for _ in range(draw(st.integers(1, 10))):
        a = draw(st.integers(0, len(names) - 1))
        b = (a + draw(st.integers(1, len(names) - 1))) % len(names)
        size = float(draw(st.integers(0, 4_000_000)))
        found.append(PlainFlow(names[a], names[b], size, draw(st.sampled_from([0.0, 0.0, 0.5, 1.0, 1.7]))))
    return found


def cases(rough: bool = False) -> st.SearchStrategy[tuple[Topology, Flows]]:
    return trees(rough).flatmap(lambda topology: st.tuples(st.just(topology), flows_on(topology)))


# at every event


class Watched(Network):
    """A network that is looked at whenever its rates are settled."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.channels: Callable[[], Sequence[Channel]] = lambda: ()
        self.looks = 0
        self.flows: dict[Flow, float] = {}  # bytes moved
        self.under_way: dict[Flow, None] = {}
        self._since_s = 0.0

    def put(self, flow: Flow) -> None:
        self.note()
        self.flows.setdefault(flow, 0.0)
        self.under_way[flow] = None
        super().put(flow)
        if self.clock.settle is None:
            self.check()  # else it has no rate yet

    def note(self) -> None:
        """Counts what has moved since the last time that anything changed."""
        now_s = self.clock.now
        for flow in self.flows:
            if not flow.paused:
                self.flows[flow] += flow.rate_Bps * (now_s - self._since_s)
        self._since_s = now_s

    def cancel(self, flow: Flow) -> None:
        self.note()
        del self.under_way[flow]
        super().cancel(flow)

    def pause_one(self, number: int, for_s: float) -> None:
        """Pause one of the flows under way for *for_s*."""
        if self.under_way:
            flow = list(self.under_way)[number % len(self.under_way)]
            self.pause(flow)
            route = FlowRoute(tuple(flow.uses), flow.bound_Bps, flow.weight)
            self.clock.alarm_at(self.clock.now + for_s, lambda _: self.resume(flow, route))

    def _finish(self, flow: Flow) -> None:
        self.note()
        del self.under_way[flow]
        super()._finish(flow)

    def _settle(self) -> None:
        self.note()
        super()._settle()
        self.check()

    def check(self) -> None:
        self.looks += 1
        check_shares(self.channels())


def check_shares(channels: Sequence[Channel]) -> None:
    """Assert that no channel is overloaded, and that each demand has its bound or a bottleneck: the max-min rates."""
    for channel in channels:
        load_Bps = sum(use * demand.rate_Bps for demand, use in channel.demands.items())
        assert load_Bps <= channel.capacity_Bps * (1 + CLOSE), f"{channel.name} carries more than it can"
    for demand in {id(demand): demand for channel in channels for demand in channel.demands}.values():
        assert demand.rate_Bps == demand.bound_Bps or any(_is_bottleneck(c, demand) for c, _ in demand.uses)


def _is_bottleneck(channel: Channel, demand: Demand) -> bool:
    """Full, and nobody on it is at a higher level."""
    load_Bps = sum(use * other.rate_Bps for other, use in channel.demands.items())
    level = demand.rate_Bps / demand.weight
    return load_Bps >= channel.capacity_Bps * (1 - CLOSE) and all(
        other.rate_Bps / other.weight <= level * (1 + CLOSE) for other in channel.demands
    )


@pytest.mark.slow
@pytest.mark.parametrize("model", ["maxmin", "lv08"])
@settings(max_examples=80, deadline=None)
@given(
    case=cases(rough=True),
    pauses=st.lists(st.tuples(st.floats(0.0, 3.0), st.integers(0, 9), st.floats(0.1, 3.0)), max_size=4),
)
def test_no_link_is_overloaded_every_flow_has_a_bottleneck_and_no_byte_is_lost(
    model: str, case: tuple[Topology, Flows], pauses: list[tuple[float, int, float]]
) -> None:
    topology, flows = case
    clock = Clock()
    network = Watched(clock)
    routes = ChannelRoutes(topology, 0, clock, network, MODELS[model])
    known = routes._channels._channels
    network.channels = lambda: list(known.values())
    ends: list[float] = []
    for flow in flows:
        _launch(routes, clock, network, flow, ends.append)
    if not any(link.loss for link in topology.links):  # their stalls are pauses, too
        for at_s, number, for_s in pauses:
            clock.alarm_at(at_s, lambda _, number=number, for_s=for_s: network.pause_one(number, for_s))  # type: ignore[misc]
    while clock.advance():
        pass
    assert len(ends) == len(flows)
    moved = sorted(network.flows.values())
    assert moved == pytest.approx(sorted(flow.size_bytes for flow in flows if flow.size_bytes), rel=1e-9, abs=1e-3)
    assert network.looks or not any(flow.size_bytes for flow in flows)


# what changes no time


@settings(deadline=None)
@given(cases(), st.randoms(use_true_random=False))
def test_other_names_and_another_order_of_the_file_change_no_time(case: tuple[Topology, Flows], random: Any) -> None:
    topology, flows = case
    order = list(topology.nodes)
    random.shuffle(order)
    names = {name: f"x{index}" for index, name in enumerate(order)}
    nodes = {names[name]: replace(topology.nodes[name], name=names[name]) for name in order}
    links = [replace(link, a=names[link.a], b=names[link.b]) for link in topology.links]
    turned = [replace(link, a=link.b, b=link.a) if random.random() < 0.5 else link for link in links]
    random.shuffle(turned)
    renamed = Topology("renamed", nodes, tuple(turned))
    again = [PlainFlow(names[f.source], names[f.target], f.size_bytes, f.start_s) for f in flows]
    assert finish_times(renamed, again) == pytest.approx(finish_times(topology, flows), rel=CLOSE)


@settings(deadline=None)
@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_the_flows_changes_no_time(case: tuple[Topology, Flows], random: Any) -> None:
    topology, flows = case
    order = list(range(len(flows)))
    random.shuffle(order)
    shuffled = finish_times(topology, [flows[index] for index in order])
    there = [shuffled[order.index(index)] for index in range(len(flows))]
    assert there == pytest.approx(finish_times(topology, flows), rel=CLOSE)


@settings(deadline=None)
@given(cases(), st.data())
def test_a_link_cut_in_two_in_series_changes_no_time(case: tuple[Topology, Flows], data: st.DataObject) -> None:
    topology, flows = case
    which = data.draw(st.integers(0, len(topology.links) - 1))
    link = topology.links[which]
    share = data.draw(st.sampled_from([0.0, 0.5, 1.0]))
    halves = (
        replace(link, b="middle", latency_s=share * link.latency_s),
        replace(link, a="middle", latency_s=(1 - share) * link.latency_s),
    )
    nodes = {**topology.nodes, "middle": Node("middle")}
    links = (*topology.links[:which], *halves, *topology.links[which + 1 :])
    cut = Topology("cut", nodes, links)
    assert finish_times(cut, flows) == pytest.approx(finish_times(topology, flows), rel=CLOSE)


@settings(deadline=None)
@given(cases(), st.sampled_from([2.0, 10.0, 0.125]))
def test_half_of_every_rate_takes_twice_the_time(case: tuple[Topology, Flows], factor: float) -> None:
    """Latencies and starts are times, too: they are to be doubled with the rest."""
    topology, flows = case
    slower = replace(
        topology,
        links=tuple(
            replace(link, bandwidth_Bps=link.bandwidth_Bps / factor, latency_s=link.latency_s * factor)
            for link in topology.links
        ),
    )
    later = [replace(flow, start_s=flow.start_s * factor) for flow in flows]
    expected = [factor * time_s for time_s in finish_times(topology, flows)]
    assert finish_times(slower, later) == pytest.approx(expected, rel=CLOSE)


@settings(deadline=None)
@given(cases())
def test_a_flow_without_bytes_changes_nothing(case: tuple[Topology, Flows]) -> None:
    topology, flows = case
    names = list(topology.nodes)
    empty = PlainFlow(names[0], names[-1], 0.0, 0.3)
    assert finish_times(topology, [*flows, empty])[:-1] == finish_times(topology, flows)
