"""Faults in virtual time, against hand arithmetic. Links of 1 MB/s and 50 ms, so that a route takes 100 ms."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from math import sqrt
from typing import Any

import pytest
import torch
from simcluster_backends.sim.cluster import SimCluster
from simcluster_backends.sim.faults import SimFaults

from simcluster.errors import PeerLost
from simcluster.topology import Topology
from simcluster.transport import ANY, Transport
from tests.support.clusters import star
from tests.support.plans import plan

Body = Callable[[Transport], Awaitable[Any]]

MB = torch.zeros(250_000)
DEAD_S = 5.0


def now() -> float:
    return asyncio.get_running_loop().time()


def links(size: int = 2, **settings: Any) -> Topology:
    return star(size, **{"bandwidth_Bps": 1e6, "latency_s": 0.05, **settings})


def run(bodies: list[Body], *faults: str, topology: Topology | None = None, seed: int = 0, **options: Any) -> list[Any]:
    topology = topology or links(len(bodies))
    cluster = SimCluster(topology, seed, faults=SimFaults(plan(topology, *faults, seed=seed), **options))
    results = cluster.run(bodies)
    for result in results:
        if isinstance(result, Exception) and not isinstance(result, PeerLost):
            raise result
    return results


def sends(to: int = 1, *tensors: torch.Tensor) -> Body:
    async def body(node: Transport) -> float:
        await node.send(to, "t", list(tensors or (MB,)))
        return now()

    return body


def receives(source: int = 0, count: int = 1) -> Body:
    async def body(node: Transport) -> list[float]:
        times = []
        for _ in range(count):
            await node.recv(source, "t")
            times.append(now())
        return times

    return body


async def idle(node: Transport) -> None:
    await asyncio.sleep(0)


# cuts


def test_a_flow_across_a_cut_stands_still_and_goes_on_where_it_was() -> None:
    # Half of 1 MB has left when the link is cut for 2 s.
    assert run([sends(), receives()], "kind: cut, link: n0-sw, at: 500 ms, for: 2 s") == [3.0, [pytest.approx(3.1)]]


def test_while_it_stands_still_others_have_its_share() -> None:
    # n1 and n2 share n0's link: 0.25 MB each in 0.5 s. Then n2 alone: 0.75 s. n1 goes on at 2.5 s, alone: 0.75 s.
    cut = "kind: cut, link: n1-sw, at: 500 ms, for: 2 s"
    assert run([receives(ANY, 2), sends(0), sends(0)], cut)[1:] == pytest.approx([3.25, 1.25])  # type: ignore[arg-type]


def test_what_would_arrive_during_a_cut_arrives_one_latency_after_it() -> None:
    # Sent at 0, due at 0.1; the cut lasts from 0.05 to 1.05.
    body = [sends(1, torch.zeros(0)), receives()]
    assert run(body, "kind: cut, link: n1-sw, at: 50 ms, for: 1 s")[1] == [pytest.approx(1.15)]
    assert run(body, "kind: cut, link: n1-sw, at: 50 ms, for: 40 ms")[1] == [0.1], (
        "one that is over by then delays nothing"
    )


def test_order_is_kept_across_a_cut() -> None:
    async def sender(node: Transport) -> None:
        for number in range(20):
            await node.send(1, "t", number)
            await asyncio.sleep(0.01)

    async def receiver(node: Transport) -> list[int]:
        return [(await node.recv(0, "t"))["value"] for _ in range(20)]

    assert run([sender, receiver], "kind: flap, link: n0-sw, at: 0 s, for: 1 s, period: 30 ms")[1] == list(range(20))


def test_a_flap_lets_through_what_its_duty_allows() -> None:
    # Cut for the first half of each 200 ms: 0.95 s of bytes take nine of them, and half of the tenth's open half.
    flap = "kind: flap, link: n0-sw, at: 0 s, for: 10 s, period: 200 ms"
    body = [sends(1, MB[:237_500]), idle]
    assert run(body, flap)[0] == pytest.approx(9 * 0.2 + 0.1 + 0.05)
    # Cut for a quarter, 50 ms: six open parts of 150 ms are 0.9 s, and 0.05 s more in the seventh.
    assert run(body, f"{flap}, down: 0.25")[0] == pytest.approx(6 * 0.2 + 0.05 + 0.05)


async def waits_long(node: Transport) -> tuple[float, PeerLost, list[int]]:
    """Says when, why and of whom it is told, and who is left."""
    with pytest.raises(PeerLost) as lost:
        await node.recv(1 - node.rank, "never")
    return now(), lost.value, list(node.peers)


def test_peers_across_a_cut_lose_each_other_after_dead_s_and_keep_the_others() -> None:
    async def bystander(node: Transport) -> None:
        await asyncio.sleep(10)

    results = run([waits_long, waits_long, bystander], "kind: partition, groups: [[n0], [n1]], at: 1 s", dead_s=DEAD_S)
    for rank, (told_s, lost, peers) in enumerate(results[:2]):
        assert told_s == 6.0
        assert (lost.rank, lost.reason) == (1 - rank, "out of reach for 5 s: cut off by the fault plan")
        assert peers == [2]


def test_a_cut_of_exactly_dead_s_is_survived() -> None:
    assert run([sends(), receives()], "kind: cut, link: n0-sw, at: 0 s, for: 5 s", dead_s=DEAD_S)[0] == 6.0
    with pytest.raises(PeerLost):
        raise run([sends(), receives()], "kind: cut, link: n0-sw, at: 0 s, for: 5.1 s", dead_s=DEAD_S)[0]


def test_who_was_lost_stays_lost_when_the_cut_heals() -> None:
    async def body(node: Transport) -> float:
        with pytest.raises(PeerLost):
            await node.recv(1 - node.rank, "never")
        await asyncio.sleep(10)
        with pytest.raises(PeerLost):
            await node.send(1 - node.rank, "t", 1)
        with pytest.raises(PeerLost):
            await node.recv(1 - node.rank, "t")
        return now()

    assert run([body, body], "kind: cut, link: n0-sw, at: 1 s, for: 7 s", dead_s=DEAD_S) == [16.0, 16.0]


def test_a_send_across_a_cut_is_told_of_the_loss_and_so_is_recv_from_any() -> None:
    async def sender(node: Transport) -> float:
        with pytest.raises(PeerLost):
            await node.send(1, "t", MB)
        return now()

    async def receiver(node: Transport) -> float:
        with pytest.raises(PeerLost, match=r"rank 0 \(n0\) is lost: out of reach"):
            await node.recv(ANY, "t")
        return now()

    assert run([sender, receiver, idle], "kind: cut, link: n0-sw, at: 500 ms", dead_s=DEAD_S)[:2] == [5.5, 5.5]


@pytest.mark.parametrize(("towards", "told_s"), [("", 6.2), (", towards: sw", 6.3)])
def test_a_send_to_one_that_has_ended_gives_up_across_a_cut(towards: str, told_s: float) -> None:
    # It still takes what it is sent, until 1.2 s; 5 s later the way is given up. One way: news from there takes 0.1 s.
    async def sender(node: Transport) -> list[float]:
        await asyncio.sleep(1.0)
        times = []
        for _ in range(2):
            with pytest.raises(PeerLost, match="out of reach"):
                await node.send(1, "t", MB)
            times.append(now())
        return times

    cut = f"kind: cut, link: n0-sw{towards}, at: 1200 ms"
    assert run([sender, idle], cut, dead_s=DEAD_S)[0] == pytest.approx([told_s, told_s])


def test_only_whoever_waits_is_told_of_a_cut() -> None:
    async def busy(node: Transport) -> float:
        await asyncio.sleep(20)
        with pytest.raises(PeerLost):
            await node.recv(1 - node.rank, "never")
        return now()

    assert run([busy, busy], "kind: cut, link: n0-sw, at: 1 s", dead_s=DEAD_S) == [20.0, 20.0]


def test_a_one_way_cut_stops_one_direction_alone() -> None:
    async def both(node: Transport) -> tuple[float, float]:
        async with asyncio.TaskGroup() as group:
            group.create_task(node.send(1 - node.rank, "t", MB))
            got = group.create_task(receives(1 - node.rank)(node))  # type: ignore[arg-type]
        return got.result()[0]

    # To n1 half of it is there when the cut begins, and the rest comes 2 s later; to n0 all comes in time.
    cut = "kind: cut, link: n1-sw, towards: n1, at: 500 ms, for: 2 s"
    assert run([both, both], cut) == [pytest.approx(1.1), pytest.approx(3.1)]


def test_after_a_long_one_way_cut_the_deaf_one_gives_up_and_the_other_is_told_one_latency_later() -> None:
    results = run([waits_long, waits_long], "kind: cut, link: n1-sw, towards: n1, at: 1 s", dead_s=DEAD_S)
    assert [(told_s, lost.reason) for told_s, lost, _ in results] == [
        (pytest.approx(6.1), "out of reach: it has given this node up"),
        (6.0, "out of reach for 5 s: cut off by the fault plan"),
    ]


def test_news_of_a_death_does_not_cross_a_cut_before_it_heals() -> None:
    faults = ("kind: cut, link: n0-sw, at: 500 ms, for: 3 s", "kind: crash, node: n1, at: 1 s")
    told_s, lost, _ = run([waits_long, idle_for(10)], *faults)[0]
    # It dies at 1 s, which would be known at 1.1; the way is open at 3.5.
    assert (told_s, lost.reason) == (pytest.approx(3.6), "crashed by the fault plan")


def idle_for(time_s: float) -> Body:
    async def body(node: Transport) -> None:
        await asyncio.sleep(time_s)

    return body


def test_a_message_lost_in_a_cut_no_longer_stands_in_the_way_of_another_that_was_not_asked_for() -> None:
    # A route takes 0.1 s. n1's megabyte is announced and asked for by 0.2 s, leaves by 1.2, and is cut off before 1.3;
    # the receiver waits for it until 6.25. Then n2's is asked for: 0.1 s, 1 s and 0.1 s.
    async def takes(node: Transport) -> tuple[float, int, float]:
        with pytest.raises(PeerLost):
            await node.recv(ANY)
        told_s = now()
        return told_s, (await node.recv(ANY)).source, now()

    async def sends(node: Transport) -> None:
        await asyncio.sleep(node.rank - 1)
        await node.send(0, "t", MB)

    topology = replace(links(3), inbox_bytes=0)
    cut = "kind: cut, link: n1-sw, at: 1250 ms"
    told = run([takes, sends, sends], cut, topology=topology, dead_s=DEAD_S)[0]
    assert told == (6.25, 2, pytest.approx(7.45))


def test_a_partition_stops_what_crosses_it_and_nothing_else() -> None:
    async def body(node: Transport) -> list[float]:
        others = [rank for rank in range(4) if rank != node.rank]
        async with asyncio.TaskGroup() as group:
            for to in others:
                group.create_task(node.send(to, "t", node.rank))
            arrivals = [group.create_task(receives(source)(node)) for source in others]  # type: ignore[arg-type]
        return [arrival.result()[0] for arrival in arrivals]

    results = run([body] * 4, "kind: partition, groups: [[n0, n1], [n2]], at: 0 s, for: 2 s")
    # n3 is in no group.
    assert results[0] == [0.1, pytest.approx(2.1), 0.1]
    assert results[1] == [0.1, pytest.approx(2.1), 0.1]
    assert results[2] == [pytest.approx(2.1), pytest.approx(2.1), 0.1]
    assert results[3] == [0.1, 0.1, 0.1]


# links


def test_a_latency_spike_delays_what_leaves_meanwhile_and_nothing_overtakes() -> None:
    async def sender(node: Transport) -> None:
        for _ in range(3):
            await node.send(1, "t", 1)
            await asyncio.sleep(1)

    # Messages leave at 0, 1 and 2 s; those that leave between 0.5 and 1.5 take 3 s longer: 1 + 3.1 = 4.1, and the last,
    # due at 2.1, is behind it.
    spike = "kind: latency, link: n0-sw, at: 500 ms, for: 1 s, add: 3 s"
    assert run([sender, receives(0, 3)], spike)[1] == [pytest.approx(t) for t in (0.1, 4.1, 4.1)]


@pytest.mark.parametrize("duplex", ["full", "half", "free"])
def test_a_bandwidth_drop_is_felt_by_a_flow_under_way(duplex: str) -> None:
    # 0.5 MB in the first 0.5 s, 0.25 MB in the next second, at a quarter, and the last 0.25 MB at full rate again.
    drop = "kind: bandwidth, link: n0-sw, at: 500 ms, for: 1 s, factor: 0.25"
    assert run([sends(), idle], drop, topology=links(duplex=duplex))[0] == pytest.approx(1.75)


def test_drops_of_one_link_multiply_and_those_of_one_way_leave_the_other() -> None:
    drops = (
        "kind: bandwidth, link: n0-sw, at: 0 s, factor: 0.5",
        "kind: bandwidth, link: n0-sw, at: 0 s, factor: 0.5, towards: sw",
    )
    assert run([sends(), idle], *drops)[0] == pytest.approx(4.0)
    assert run([idle, sends(0)], *drops)[1] == pytest.approx(2.0)


def test_lost_packets_bound_the_rate_and_cost_time_outs_drawn_by_seed() -> None:
    loss = "kind: loss, link: n0-sw, at: 0 s, probability: 0.05"
    times = [run([sends(), idle], loss, seed=seed)[0] for seed in (0, 0, 1)]
    # At most MSS / (RTT sqrt(2 b p / 3)), with b = 2 and a round trip of 0.2 s: 1 MB takes 35.7 s at least.
    assert 1e6 / (1448 / (0.2 * sqrt(2 * 2 * 0.05 / 3))) < times[0] == times[1] != times[2]
    assert run([sends(), idle], "kind: loss, link: n0-sw, at: 2 s, probability: 0.05")[0] == 1.0, "not before it begins"


def test_a_link_is_as_before_when_its_fault_is_over() -> None:
    async def twice(node: Transport) -> list[float]:
        await node.send(1, "t", MB)
        await asyncio.sleep(100 - now())
        await node.send(1, "t", MB)
        return [now()]

    for fault in ("latency, add: 1 s", "bandwidth, factor: 0.01", "loss, probability: 0.1"):
        times = run([twice, receives(0, 2)], f"kind: {fault}, link: n0-sw, at: 100 ms, for: 90 s")
        assert times[0] == [pytest.approx(101.0)], fault
        assert times[1][1] == pytest.approx(101.1), fault
