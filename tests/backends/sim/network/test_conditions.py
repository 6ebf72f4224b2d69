"""Links that change and traffic of others: by hand arithmetic; nothing of it keeps a run from ending, or from being
found out to be stuck."""

from __future__ import annotations

import asyncio
import contextlib
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simcluster_backends.sim import SimCluster
from simcluster_backends.sim.loop.clock import Clock
from simcluster_backends.sim.network.conditions import ChangingQuantity, Conditions, rates
from simcluster_backends.sim.network.fairshare import Channel, Demand
from simcluster_backends.sim.network.flows import Flow, Network
from simcluster_backends.sim.plain_flows import finish_times

from simcluster.errors import Deadlock, NeverFinished, PeerLost
from simcluster.rng import numpy_stream
from simcluster.topology import Topology, load
from simcluster.topology.model.conditions import Background, BackgroundFlow, LatencyTrace, RateTrace
from simcluster.topology.plain_flows import PlainFlow
from simcluster.transport import Transport
from tests.support.clusters import arrivals, now, pair, run, star, with_links

M = 1e6


def trace(*steps: tuple[float, float], period_s: float = math.inf) -> RateTrace:
    return RateTrace(steps, period_s)


# bandwidth that changes


def test_a_transfer_over_a_change_takes_what_each_rate_leaves() -> None:
    # 1 MB in the first second, then 2 MB at 0.25 MB/s, with the latency behind
    link = pair(M, 0.5, trace=trace((0.0, 1 * M), (1.0, 0.25 * M)))
    assert arrivals(link, [3_000_000]) == pytest.approx([9.5], rel=1e-12)
    assert arrivals(pair(M, 0.5), [3_000_000]) == [3.5]


def test_no_bandwidth_is_a_standstill_until_there_is_some() -> None:
    link = pair(M, trace=trace((0.0, 1 * M), (1.0, 0.0), (5.0, 2 * M)))
    # 1 MB by 1 s, nothing until 5 s, 2 MB in one more second
    assert arrivals(link, [3_000_000]) == [6.0]


def test_a_transfer_that_begins_in_a_standstill_waits_for_its_end() -> None:
    link = pair(M, trace=trace((0.0, 0.0), (5.0, 2 * M)))
    assert arrivals(link, [2_000_000]) == [6.0]
    assert finish_times(link, [PlainFlow("n0", "n1", 2e6, 1.0), PlainFlow("n1", "n0", 2e6, 5.5)]) == [6.0, 6.5]


@given(st.floats(1e3, 1e10), st.floats(1e-3, 1e3), st.floats(0, 10))
def test_a_transfer_that_ends_as_the_standstill_begins_has_ended(rate_Bps: float, end_s: float, start_s: float) -> None:
    # Rounding may leave a little of a byte at that moment, which would have to wait until 1 s later.
    end_s += start_s
    link = pair(rate_Bps, trace=trace((0.0, rate_Bps), (end_s, 0.0), (end_s + 1, rate_Bps)))
    [done_s] = finish_times(link, [PlainFlow("n0", "n1", rate_Bps * (end_s - start_s), start_s)])
    assert done_s == pytest.approx(end_s, rel=1e-9)


def test_a_period_begins_again_and_again() -> None:
    # On for 1 s, off for 3: 1 MB a period.
    link = pair(M, trace=trace((0.0, 1 * M), (1.0, 0.0), period_s=4.0))
    assert finish_times(link, [PlainFlow("n0", "n1", 2.5 * M)]) == [8.5]
    assert finish_times(link, [PlainFlow("n0", "n1", M, 4e9 + 0.5)]) == [4e9 + 4.5], "a billion periods later"


def test_both_ways_of_a_link_change_and_other_links_do_not() -> None:
    up, *others = star(3, M, 0.0).links
    cluster = replace(star(3, M, 0.0), links=(replace(up, trace=trace((0.0, 0.5 * M))), *others))
    flows = [PlainFlow("n0", "n1", M), PlainFlow("n2", "n0", M), PlainFlow("n1", "n2", M)]
    assert finish_times(cluster, flows) == [2.0, 2.0, 1.0]


def test_lv08_takes_its_share_of_what_there_is() -> None:
    link = pair(M, trace=trace((0.0, 0.5 * M)))
    assert finish_times(link, [PlainFlow("n0", "n1", M)], "lv08") == pytest.approx([1 / (0.97 * 0.5)], rel=1e-12)


def test_a_trace_comes_from_a_file_beside_the_topology(tmp_path: Path) -> None:
    (tmp_path / "wifi.csv").write_text(
        "# measured on Sunday\ntime_s,bandwidth\n0,8 Mbps\n1, 2 Mbps\n3,0 bps\n4,1 MB/s\n"
    )
    path = tmp_path / "t.yaml"
    path.write_text(
        "nodes: {n0: {flops: 1 GFLOP/s}, n1: {flops: 1 GFLOP/s}}\n"
        "links: [{between: [n0, n1], bandwidth: 1 Gbps, latency: 0 s, trace: {file: wifi.csv}}]\n"
    )
    cluster = load(path)
    assert cluster.links[0].trace == RateTrace(((0.0, M), (1.0, 0.25 * M), (3.0, 0.0), (4.0, M)))
    # 1 MB in 1 s, 0.5 MB in 2 s, nothing for 1 s, 0.5 MB in 0.5 s
    assert arrivals(cluster, [2_000_000]) == [4.5]
    assert load(cluster.document) == cluster, "it travels in the document"


# latency that changes


def latency_trace(*steps: tuple[float, float], period_s: float = math.inf, nominal_s: float = 0.5) -> LatencyTrace:
    return LatencyTrace(steps, period_s, nominal_s=nominal_s)


def test_a_message_has_the_latency_of_its_departure_and_overtakes_none() -> None:
    # 1 MB each: they leave at 1, 2, 3 and 4 s, with 0.5, 4, 0.1 and 4 s. The third waits for the second, at 6 s.
    link = pair(M, 0.5, latency_trace=latency_trace((0.0, 0.5), (2.0, 4.0), (3.0, 0.1), period_s=4.0 - 2.0**-10))
    assert arrivals(link, [1_000_000] * 3) == pytest.approx([1.5, 6.0, 6.0])
    again = pair(M, 0.5, latency_trace=latency_trace((0.0, 0.5), (2.0, 4.0), period_s=3.0))
    # They leave at 1, 2, 3 (the start of the second period) and 4 s.
    assert arrivals(again, [1_000_000] * 4) == pytest.approx([1.5, 6.0, 6.0, 6.0])


def test_a_latency_that_changes_adds_up_over_links_and_models() -> None:
    up, *others = star(3, M, 0.5).links
    slower = replace(up, latency_trace=latency_trace((0.0, 0.5), (1.0, 2.0)))
    cluster = replace(star(3, M, 0.5), links=(slower, *others))
    # From n0: 0.5 + 0.5 s at 0 s, 2 + 0.5 s at 1 s; a plain flow waits for its latency first. n1 and n2 see nothing.
    flows = [PlainFlow("n0", "n1", M), PlainFlow("n1", "n0", M, 1.0), PlainFlow("n1", "n2", M, 1.0)]
    assert finish_times(cluster, flows) == pytest.approx([2.0, 4.5, 3.0])
    zero = pair(M, 0.0, latency_trace=latency_trace((0.0, 0.1), nominal_s=0.0))
    assert finish_times(zero, [PlainFlow("n0", "n1", 0.97e6)], "lv08") == pytest.approx([13.01 * 0.1 + 1])


def test_the_end_of_a_process_travels_with_the_latency_of_its_moment() -> None:
    async def ends(node: Transport) -> None:
        await asyncio.sleep(2.0)

    async def waits(node: Transport) -> float:
        with contextlib.suppress(PeerLost):
            await node.recv(0, "never")
        return now()

    link = pair(M, 0.5, latency_trace=latency_trace((0.0, 0.5), (2.0, 4.0), (5.0, 0.5)))
    assert run(link, ends, waits) == [None, 6.0]


def test_a_link_that_never_comes_back_is_a_deadlock_that_says_who_waits() -> None:
    with pytest.raises(Deadlock) as stuck:
        arrivals(pair(M, trace=trace((0.0, M), (1.0, 0.0))), [2_000_000])
    assert "rank 0 (n0) waits for send(to=1, tag='t', 2000000 B)" in str(stuck.value)
    never = finish_times(pair(M, trace=trace((0.0, M), (1.0, 0.0))), [PlainFlow("n0", "n1", 2e6)])
    assert never == [math.inf]


def test_a_run_in_which_nobody_sends_is_found_out_though_links_change_for_ever() -> None:
    async def waits(node: Transport) -> None:
        await node.recv(1 - node.rank, "never")

    async def sends_once(node: Transport) -> None:
        await node.send(1, "t", None)
        await waits(node)

    link = pair(M, trace=trace((0.0, M), (1.0, 2 * M), period_s=2.0), background=Background(M / 10, 1.0, 1.0))
    for body in (waits, sends_once):
        with pytest.raises(Deadlock):
            SimCluster(link).run([body, waits])


def test_a_link_that_changes_for_ever_without_a_byte_ends_the_run_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simcluster_backends.sim.network.conditions.TURNS_LIMIT", 100)
    link = pair(M, trace=trace((0.0, 0.0), (1.0, 0.0), period_s=2.0))
    with pytest.raises(NeverFinished):
        arrivals(link, [1_000_000])
    assert finish_times(link, [PlainFlow("n0", "n1", 1.0)]) == [math.inf]


def test_a_year_of_sleep_is_not_lived_through_change_by_change() -> None:
    calls = 0

    def steps(from_s: float):  # type: ignore[no-untyped-def]
        nonlocal calls
        for step in rates(trace((0.0, 1.0), (0.001, 2.0), period_s=0.002), from_s):
            calls += 1
            yield step

    put: list[float] = []
    changing = ChangingQuantity(steps, put.append, 0.004)
    assert changing.catch_up(0.0) == 0.001
    assert changing.catch_up(3e7 + 0.0015) == pytest.approx(3e7 + 0.002, abs=1e-8)
    assert put == [1.0, 2.0]
    assert calls < 10


def test_conditions_sleep_while_no_flow_is_under_way() -> None:
    cluster = SimCluster(pair(M, trace=trace((0.0, M), (1.0, M / 2), period_s=2.0)))
    conditions = cluster.streams.of(0, 1).way.conditions
    assert isinstance(conditions, Conditions)
    conditions.enter()
    conditions.leave()
    while cluster.loop.clock.advance():
        pass
    assert cluster.loop.clock.now <= 1.0


# traffic of others


def test_background_takes_its_rate_and_no_more() -> None:
    # 300 kB/s of 1 MB/s are taken each way: 0.7 MB/s is left
    link = pair(M, background=Background(0.3 * M))
    assert arrivals(link, [700_000]) == pytest.approx([1.0], rel=1e-12)
    assert arrivals(pair(M), [700_000]) == [0.7]


def test_background_shares_fairly_and_never_takes_all() -> None:
    assert arrivals(pair(M, background=Background(5 * M)), [1_000_000]) == [2.0]
    # two flows beside it: a third each
    flows = [PlainFlow("n0", "n1", M), PlainFlow("n0", "n1", M)]
    assert finish_times(pair(M, background=Background(5 * M)), flows) == pytest.approx([3.0, 3.0], rel=1e-12)


def test_background_on_one_medium_is_there_once_and_not_for_each_way() -> None:
    both = [PlainFlow("n0", "n1", M), PlainFlow("n1", "n0", M)]
    # 0.2 MB/s off 1 MB/s: 0.4 for each way
    times = finish_times(pair(M, 0.0, "half", background=Background(0.2 * M)), both)
    assert times == pytest.approx([2.5, 2.5], rel=1e-12)


def test_background_between_two_nodes_is_felt_on_its_whole_way() -> None:
    others = BackgroundFlow("n0", "n1", Background(0.5 * M))
    cluster = replace(star(3, M, 0.0), background=(others,))
    flows = [PlainFlow("n2", "n1", M), PlainFlow("n2", "n0", M), PlainFlow("n0", "n2", M)]
    # n2 sends to both: n1's link has half left, n2's own is shared evenly; n0's way up has half left, too
    assert finish_times(cluster, flows) == [2.0, 2.0, 2.0]
    assert finish_times(cluster, flows[1:2]) == [1.0], "n0's way down is free"


def spells(traffic: Background, seed: int, names: tuple[str, ...], count: int) -> tuple[bool, list[float]]:
    """Whether it is on at first, and how long each of its spells lasts: what is drawn, in the order of the module."""
    random = numpy_stream(seed, "background", *names)
    on = first = bool(random.random() < traffic.on_s / (traffic.on_s + traffic.off_s))
    lasts = []
    for _ in range(count):
        lasts.append(float(random.exponential(traffic.on_s if on else traffic.off_s)))
        on = not on
    return first, lasts


@pytest.mark.parametrize("seed", range(4))
def test_traffic_that_comes_and_goes_is_there_in_the_spells_drawn(seed: int) -> None:
    traffic = Background(0.75 * M, 1.0, 2.0)
    others = BackgroundFlow("n0", "n1", traffic)
    cluster = replace(pair(M), background=(others,))
    on, lasts = spells(traffic, seed, ("n0", "n1", "0"), 100)
    left_B, at_s = 10 * M, 0.0
    for last_s in lasts:
        rate_Bps = 0.5 * M if on else M  # fair shares: it asks for more than half
        if left_B <= rate_Bps * last_s:
            break
        left_B -= rate_Bps * last_s
        at_s += last_s
        on = not on
    assert finish_times(cluster, [PlainFlow("n0", "n1", 10 * M)], seed=seed)[0] == pytest.approx(
        at_s + left_B / rate_Bps, rel=1e-9
    )


def settle(clock: Clock) -> None:
    if clock.settle is not None:
        clock.settle()
        clock.settle = None


def test_traffic_that_comes_again_finds_its_share_anew() -> None:
    # Beside two, one and no other flow: a third, a half and all, whatever it had before.
    clock = Clock()
    network, channel = Network(clock), Channel("l", 3 * M)
    traffic = Demand([(channel, 1.0)])
    for flows, share in ((2, M), (1, 1.5 * M), (0, 3 * M)):
        ways = [Flow(((channel, 1.0),), left_B=1e9, on_done=lambda: None) for _ in range(flows)]
        for way in ways:
            network.put(way)
        network.join(traffic)
        settle(clock)
        assert traffic.rate_Bps == share
        network.leave(traffic)
        for way in ways:
            network.cancel(way)
        settle(clock)


def test_traffic_that_comes_and_goes_is_there_for_its_share_of_the_time() -> None:
    # On for 0.2 s and off for 0.3 s on average: 40 % of the time half of the link. 1 MB/s in 60 %, 0.5 in 40 %: 0.8.
    traffic = Background(10 * M, 0.2, 0.3)
    link = pair(M, background=traffic)
    goodput = 1600 * M / finish_times(link, [PlainFlow("n0", "n1", 1600 * M)])[0]
    # The share of time on, over T, has the variance 2 f (1-f) / ((1/0.2 + 1/0.3) T).
    error = 0.5 * M * math.sqrt(2 * 0.4 * 0.6 / (1 / 0.2 + 1 / 0.3) / 2000)
    assert goodput == pytest.approx(0.8 * M, abs=3 * error)


def test_the_seed_decides_when_others_come() -> None:
    link = pair(M, background=Background(10 * M, 0.2, 0.3))
    ends = [arrivals(link, [3_000_000], seed=seed)[0] for seed in (0, 0, 1, 2)]
    assert ends[0] == ends[1]
    assert len(set(ends)) == 3


def test_each_way_of_a_link_has_traffic_of_its_own() -> None:
    link = pair(M, background=Background(10 * M, 0.2, 0.3))
    there, back = finish_times(link, [PlainFlow("n0", "n1", 3 * M), PlainFlow("n1", "n0", 3 * M)])
    assert there != back


def test_a_ring_computed_ahead_does_not_overlook_the_traffic_of_others() -> None:
    import torch

    from simcluster.collectives import ring_all_reduce

    async def body(node: Transport) -> float:
        await ring_all_reduce(node, torch.empty(4_000_000, dtype=torch.uint8, device="meta"), "r")
        return now()

    def elapsed_s(cluster: Topology) -> float:
        found: float = max(run(cluster, *[body] * 4))
        return found

    # 2 (p-1) rounds of 1 MB at 1 MB/s; at 0.5 MB/s, with half of each link taken
    assert elapsed_s(star(4, M, 0.0)) == pytest.approx(6.0, rel=1e-12)
    assert elapsed_s(with_links(star(4, M, 0.0), background=Background(0.5 * M))) == pytest.approx(12.0, rel=1e-12)
    assert elapsed_s(with_links(star(4, M, 0.0), trace=trace((0.0, 0.5 * M)))) == pytest.approx(12.0, rel=1e-12)


def test_what_is_not_there_makes_no_events() -> None:
    async def sleeps(node: Transport) -> None:
        await asyncio.sleep(1e6)

    cluster = SimCluster(pair(M, background=Background(M / 2, 0.001, 0.001)))
    cluster.streams.of(0, 1)
    events = cluster.loop.clock.numbers
    cluster.run([sleeps, sleeps])
    assert next(events) < 50
    assert np.isclose(cluster.loop.time(), 1e6)
