"""The fluid network against hand arithmetic. Rates in B/s, sizes in bytes, M = 10^6; no latency at this level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simcluster_backends.sim.loop.clock import Clock
from simcluster_backends.sim.network.fairshare import Channel
from simcluster_backends.sim.network.flows import Flow, FlowRoute, Network

M = 1e6


def over(*channels: Channel, bound_Bps: float = inf) -> FlowRoute:
    return FlowRoute(tuple((channel, 1.0) for channel in channels), bound_Bps)


def start(network: Network, route: FlowRoute, size_bytes: float, on_done: Callable[[], None]) -> Flow:
    network.put(flow := Flow(*route, left_B=size_bytes, on_done=on_done))
    return flow


def finish_times(flows: Sequence[tuple[float, FlowRoute, float]]) -> list[float]:
    """Starts (start, route, size) each at its time and returns when each is done."""
    clock = Clock()
    network = Network(clock)
    done = [float("nan")] * len(flows)

    def finish(index: int) -> None:
        done[index] = clock.now

    for index, (start_s, route, size) in enumerate(flows):
        clock.alarm_at(
            start_s,
            lambda _, i=index, r=route, s=size: start(network, r, s, lambda: finish(i)),  # type: ignore[misc]
        )
    while clock.advance():
        pass
    return done


def test_a_bound_flow_leaves_the_rest_and_is_not_hurried_later() -> None:
    shared = Channel("s", 1 * M)
    # 100 kB/s for the bound one, 900 kB/s for the other: 10 s and 1.111 s; then the bound one still has 100 kB/s.
    flows = [(0.0, over(shared, bound_Bps=100e3), 1 * M), (0.0, over(shared), 1 * M)]
    assert finish_times(flows) == pytest.approx([10.0, 1 / 0.9])


def test_weights_divide_a_channel() -> None:
    link = Channel("l", 3 * M)
    # 1 MB/s and 2 MB/s: both done after 1 s.
    flows = [(0.0, FlowRoute(((link, 1.0),), weight=w), w * M) for w in (1.0, 2.0)]
    assert finish_times(flows) == [1.0, 1.0]


def test_a_flow_that_crosses_a_medium_twice_takes_twice_its_share() -> None:
    air = Channel("air", 1 * M)
    # Relayed by an access point: each byte is on the air twice.
    assert finish_times([(0.0, FlowRoute(((air, 2.0),)), 1 * M)]) == [2.0]


def test_a_flow_alone_on_a_channel_of_no_capacity_sets_no_alarm() -> None:
    clock = Clock()
    network, link, done = Network(clock), Channel("l", 0.0), []
    start(network, over(link), 1 * M, lambda: done.append(clock.now))
    assert not clock.advance()
    network.change(link, 2 * M)
    while clock.advance():
        pass
    assert done == [0.5]


def test_a_paused_flow_keeps_what_it_has_left_and_gives_its_share_away() -> None:
    clock = Clock()
    network, link, done = Network(clock), Channel("l", 1 * M), []
    start(network, over(link), 2 * M, lambda: done.append(("stays", clock.now)))
    paused = start(network, over(link), 1 * M, lambda: done.append(("paused", clock.now)))
    clock.alarm_at(1.0, lambda _: network.pause(paused))
    clock.alarm_at(4.0, lambda _: network.resume(paused, over(Channel("other", 0.25 * M))))
    while clock.advance():
        pass
    # 0.5 MB each in the first second, then 1.5 MB alone; and 0.5 MB over another way from 4 s on.
    assert done == [("stays", 2.5), ("paused", 6.0)]


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 4)), max_size=12), st.integers(1, 4))
def test_pausing_flows_loses_no_byte(pauses: list[tuple[int, float]], others: int) -> None:
    # Whoever is paused gives way to the others, so the channel is never idle while all are not paused at once; with one
    # flow that never pauses, all of it goes through as fast as if nobody had paused.
    clock = Clock()
    network, link = Network(clock), Channel("l", 1 * M)
    done: list[int] = []
    flows = [start(network, over(link), 1 * M, lambda i=i: done.append(i)) for i in range(others)]  # type: ignore[misc]
    start(network, over(link), 40 * M, lambda: done.append(others))
    for index, at_s in pauses:
        flow = flows[index % others]

        def pause(_: object, flow: Flow = flow) -> None:
            if not flow.paused and flows.index(flow) not in done:
                network.pause(flow)
                clock.alarm_at(clock.now + 0.5, lambda _: network.resume(flow, over(link)))

        clock.alarm_at(at_s, pause)
    while clock.advance():
        pass
    assert sorted(done) == list(range(others + 1))
    assert clock.now == pytest.approx(40.0 + others, rel=1e-9)


@pytest.mark.parametrize("act", ["cancel", "pause"])
def test_of_flows_that_would_end_together_one_can_still_be_stopped(act: str) -> None:
    clock = Clock()
    network, link, done = Network(clock), Channel("l", 1 * M), []
    flows: list[Flow] = []
    clock.alarm_at(2.0, lambda _: getattr(network, act)(flows[0]))  # set before the alarm of the ends
    for number, size in enumerate([0.5 * M, 0.75 * M, 1 * M, 1 * M]):
        flows.append(start(network, over(link), size, lambda n=number: done.append((n, clock.now))))  # type: ignore[misc]
    while clock.advance():
        pass
    # A quarter each until 2 s, when the first would end. The others have 0.25, 0.5 and 0.5 MB left: a third each for
    # 0.75 s, and then 0.25 MB at a half for 0.5 s.
    assert done == [(1, 2.75), (2, 3.25), (3, 3.25)]


def test_a_link_shared_anew_ten_thousand_times_loses_no_byte() -> None:
    link = Channel("l", 1 * M)
    # A 10 MB flow and 10,000 small ones that come and go beside it: 10 MB + 10,000 x 100 B at 1 MB/s.
    small = [(0.001 * index, over(link), 100.0) for index in range(10_000)]
    done = finish_times([(0.0, over(link), 10 * M), *small])
    assert done[0] == pytest.approx(11.0, rel=1e-9)


def test_a_transfer_shorter_than_the_clocks_resolution_ends() -> None:
    link = Channel("l", 1e12)
    # 1e9 s + 1e-12 s is 1e9 s in floating point.
    assert finish_times([(1e9, over(link), 1.0), (1e9, over(link), 1.0)]) == [1e9, 1e9]
