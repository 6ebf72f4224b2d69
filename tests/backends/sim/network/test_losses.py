"""Losses as TCP feels them: PFTK's goodput, stalls of a time-out, and every message in the end, in order."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace

import numpy as np
import pytest
from simcluster_backends.sim.loop.clock import Clock
from simcluster_backends.sim.network.fairshare import Channel
from simcluster_backends.sim.network.flows import FlowRoute, Network
from simcluster_backends.sim.network.losses import MSS_BYTES, Losses, Stall, StallingFlow, rate_bound_Bps, together
from simcluster_backends.sim.plain_flows import finish_times

from simcluster.rng import numpy_stream
from simcluster.topology.plain_flows import PlainFlow
from simcluster.transport import Transport
from tests.support.clusters import arrivals, pair, run, star

LOSS, RTT_S = 0.01, 0.02
TIMEOUT_S = 0.2 + RTT_S


def pftk_s(loss: float, round_trip_s: float, window: float) -> float:
    """Seconds a packet, by equation 29 of the paper without a largest window; b = 2."""
    backoff = 1 + loss + 2 * loss**2 + 4 * loss**3 + 8 * loss**4 + 16 * loss**5 + 32 * loss**6
    timeouts = loss * min(1, 3 / window) * (0.2 + round_trip_s) * backoff / (1 - loss)
    return round_trip_s * math.sqrt(4 * loss / 3) + timeouts


def test_the_bound_is_that_of_mathis_and_others() -> None:
    # MSS / RTT sqrt(3 / 4) / sqrt(p) with delayed acknowledgements: 1448 B / 20 ms x 0.866 / 0.1 = 627 kB/s
    assert rate_bound_Bps(LOSS, RTT_S) == pytest.approx(1448 / 0.02 * math.sqrt(0.75) / 0.1, rel=1e-12)
    assert rate_bound_Bps(0.0, RTT_S) == math.inf
    assert rate_bound_Bps(LOSS, 0.0) == math.inf


def test_losses_of_links_in_a_row_add_up_to_those_that_do_not_get_through() -> None:
    assert together([0.1, 0.2]) == pytest.approx(1 - 0.9 * 0.8, rel=1e-12)
    assert together([]) == together([0.0, 0.0]) == 0.0


def test_a_long_transfer_has_the_goodput_of_pftks_equation() -> None:
    # 2 million packets; the window is sqrt(8 / (3 b p)) = 11.5 packets
    packets = 2_000_000
    losses = Losses(LOSS, RTT_S, numpy_stream(0, "t"))
    stalls = losses.stalls(packets * MSS_BYTES)
    seconds = packets * MSS_BYTES / rate_bound_Bps(LOSS, RTT_S) + sum(stall.pause_s for stall in stalls)
    window = math.sqrt(4 / (3 * LOSS))
    number = packets * LOSS * 3 / window
    error_s = math.sqrt(number) * TIMEOUT_S * 1.1  # of a sum of about so many pauses
    assert seconds == pytest.approx(packets * pftk_s(LOSS, RTT_S, window), abs=3 * error_s)
    assert len(stalls) == pytest.approx(number, abs=3 * math.sqrt(number))


def test_a_message_of_few_packets_waits_for_a_time_out_whenever_one_is_lost() -> None:
    # With 2 packets nobody tells the sender of a loss: each of them stalls with probability p.
    losses, count = Losses(0.1, RTT_S, numpy_stream(0, "t")), 20_000
    stalls = sum(len(losses.stalls(2 * MSS_BYTES)) for _ in range(count))
    assert stalls == pytest.approx(0.2 * count, abs=3 * math.sqrt(0.2 * count))


def test_time_outs_double_as_long_as_their_packet_is_lost_again() -> None:
    losses = Losses(0.5, 0.0, numpy_stream(0, "t"))
    pauses = np.array([stall.pause_s for _ in range(3000) for stall in losses.stalls(1)])
    # T0, 3 T0, 7 T0, ... with a half of what is left each; then 64 T0 more each time
    steps = [0.2, 0.6, 1.4, 3.0, 6.2, 12.6, 25.4, 38.2, 51.0]
    for number, step_s in enumerate(steps[:4]):
        assert np.isclose(pauses, step_s).mean() == pytest.approx(0.5 ** (number + 1), abs=0.04)
    assert set(np.round(pauses, 6)) - set(np.round([*steps, *(51.0 + 12.8 * n for n in range(1, 12))], 6)) == set()


def test_a_lossy_link_is_slower_by_the_bound_and_by_the_stalls_that_were_drawn() -> None:
    size, seed = 3_000_000, 3
    lossy = pair(125e6, RTT_S / 2, loss=LOSS)
    stalls = Losses(LOSS, RTT_S, numpy_stream(seed, "loss", "n0", "n1")).stalls(size)
    assert len(stalls) > 2
    expected = size / rate_bound_Bps(LOSS, RTT_S) + sum(stall.pause_s for stall in stalls) + RTT_S / 2
    assert arrivals(lossy, [size], seed=seed) == pytest.approx([expected], rel=1e-9)
    assert arrivals(pair(125e6, RTT_S / 2), [size], seed=seed) == [size / 125e6 + RTT_S / 2]


def test_where_the_link_is_slower_than_the_bound_only_stalls_are_felt() -> None:
    size, seed = 1_000_000, 3
    stalls = Losses(0.001, RTT_S, numpy_stream(seed, "loss", "n0", "n1")).stalls(size)
    times = arrivals(pair(1e6, RTT_S / 2, loss=0.001), [size], seed=seed)
    assert times == pytest.approx([1.0 + RTT_S / 2 + sum(stall.pause_s for stall in stalls)], rel=1e-9)


def test_others_have_the_link_to_themselves_while_a_flow_stalls() -> None:
    # n0's and n2's flows share n1's link until n0's first stall, of 0.2 s at least: then n2 has 150 kB minus half of
    # what both have sent, at full rate.
    lossy_link, *clean = star(3, 1e6, 0.0).links
    cluster = replace(star(3, 1e6, 0.0), links=(replace(lossy_link, loss=0.5), *clean))
    first = Losses(0.5, 0.0, numpy_stream(0, "loss", "n0", "n1")).stalls(70_000)[0]
    assert 0 < first.before_B < 70_000
    flows = [PlainFlow("n0", "n1", 70_000), PlainFlow("n2", "n1", 150_000)]
    both_s = 2 * first.before_B / 1e6
    assert finish_times(cluster, flows)[1] == pytest.approx(both_s + (0.15 - first.before_B / 1e6), rel=1e-9)


def test_a_flow_that_is_paused_in_its_stall_keeps_what_is_left_and_goes_on_at_once() -> None:
    # 1 s of bytes, a stall of 10 s from 1 s on; paused at 3 s and resumed at 5 s, it has 2 s of bytes to go.
    clock = Clock()
    network, route, ends = Network(clock), FlowRoute(((Channel("l", 1e6), 1.0),)), []
    flow = StallingFlow(
        *route, left_B=3e6, on_done=lambda: ends.append(clock.now), network=network, stalls=[Stall(1e6, 10.0)]
    )
    network.put(flow)
    clock.alarm_at(3.0, lambda _: network.pause(flow))
    clock.alarm_at(5.0, lambda _: network.resume(flow, route))
    while clock.advance():
        pass
    assert ends == [7.0]


def test_a_lost_header_delays_a_message_without_a_body() -> None:
    lossy = pair(1e6, 0.0, loss=0.9)
    first = Losses(0.9, 0.0, numpy_stream(1, "loss", "n0", "n1")).stalls(0)
    assert len(first) == 1
    assert arrivals(lossy, [0], seed=1) == pytest.approx([first[0].pause_s], rel=1e-12)


def test_every_message_arrives_once_and_in_order_however_much_is_lost() -> None:
    async def sender(node: Transport) -> None:
        for number in range(200):
            await node.send(1, "t", {"number": number})

    async def receiver(node: Transport) -> list[object]:
        return [(await node.recv(0, "t")).payload.values["number"] for _ in range(200)]

    assert run(pair(1e6, 0.001, loss=0.4), sender, receiver)[1] == list(range(200))


def test_a_cancelled_send_in_its_stall_arrives_nowhere_and_the_next_one_goes_at_once() -> None:
    lossy = pair(1e6, 0.0, loss=0.999)

    async def sender(node: Transport) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await node.send(1, "t", {"which": 1})
        sending = asyncio.create_task(node.send(1, "t", {"which": 2}))
        await asyncio.sleep(1e9)
        await sending

    async def receiver(node: Transport) -> object:
        return (await node.recv(0, "t")).payload.values["which"]

    assert run(lossy, sender, receiver)[1] == 2


def test_the_seed_draws_the_stalls() -> None:
    lossy = pair(1e6, 0.001, loss=0.1)
    assert arrivals(lossy, [100_000] * 3) == arrivals(lossy, [100_000] * 3)
    assert arrivals(lossy, [100_000] * 3) != arrivals(lossy, [100_000] * 3, seed=1)


def test_plain_flows_and_the_model_of_tcp_feel_losses_too() -> None:
    flow, seed = [PlainFlow("n0", "n1", 3e6)], 3
    clean, lossy = pair(125e6, RTT_S / 2), pair(125e6, RTT_S / 2, loss=LOSS)
    stalls = Losses(LOSS, RTT_S, numpy_stream(seed, "loss", "n0", "n1")).stalls(3_000_000)
    stalled_s = sum(stall.pause_s for stall in stalls)
    bound_s = 3e6 / rate_bound_Bps(LOSS, RTT_S)
    assert finish_times(lossy, flow, seed=seed) == pytest.approx([RTT_S / 2 + bound_s + stalled_s], rel=1e-9)
    assert finish_times(lossy, flow, "lv08", seed) == pytest.approx([13.01 * RTT_S / 2 + bound_s + stalled_s], rel=1e-9)
    assert finish_times(clean, flow, seed=seed) == [RTT_S / 2 + 3e6 / 125e6]
