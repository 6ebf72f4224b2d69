"""Eager up to a budget of bytes from each peer, as on sockets, or nothing unasked: the same bytes, other times."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from math import inf

import pytest
import torch
from simcluster_backends.sim import SimCluster
from simcluster_backends.sim.faults import SimFaults

import simcluster
from simcluster.collectives import exchange, ring_all_reduce
from simcluster.errors import Deadlock, PeerLost, UsageError
from simcluster.experiment.read.read import read_experiment
from simcluster.fault_plans.kinds import Crash
from simcluster.topology import Topology
from simcluster.transport import ANY, Transport
from tests.support.clusters import arrivals, block, now, pair, run, star, with_nodes
from tests.support.socket_cluster import run_bodies as run_on_sockets

M = 1_000_000
EAGER, ASKED = None, 0


def with_inbox(topology: Topology, inbox_bytes: int | None) -> Topology:
    return replace(topology, inbox_bytes=inbox_bytes)


# one host ten times slower than seven others, recursive doubling


async def recursive_doubling(node: Transport) -> float:
    """1 GB to and from rank xor 1, then xor 2, then xor 4."""
    distance = 1
    while distance < node.size:
        await exchange(node, node.rank ^ distance, node.rank ^ distance, f"r{distance}", block(1000 * M))
        distance *= 2
    return now()


@pytest.mark.parametrize(("inbox_bytes", "elapsed_s"), [(EAGER, 380.0), (ASKED, 240.0)])
def test_recursive_doubling_with_a_slow_host_is_slower_where_messages_come_unasked(
    inbox_bytes: int | None, elapsed_s: float
) -> None:
    """u = 1 GB at 125 MB/s = 8 s; rank 0's link has 12.5 MB/s.

    Asked for, rank 0's three rounds take 10 u each: 240 s. Unasked, ranks 2 and 4 are through their first rounds by u
    and 2 u and send to rank 0, beside rank 1: at 2 u rank 1 has 0.85 GB left and a third of the link, until 27.5 u.
    Then 2 -> 0 needs two and 4 -> 0 half a u more, which they do while 0 -> 2 takes 10 u, and 0 -> 4 as long again:
    47.5 u = 380 s.
    """
    slow, *fast = star(8, 125e6, 0.0).links
    cluster = replace(star(8, 125e6, 0.0), links=(replace(slow, bandwidth_Bps=12.5e6), *fast))
    times = run(with_inbox(cluster, inbox_bytes), *[recursive_doubling] * 8)
    assert max(times) == pytest.approx(elapsed_s, rel=1e-9)


def test_where_all_hosts_are_alike_it_makes_no_difference() -> None:
    for inbox_bytes in (EAGER, ASKED):
        times = run(with_inbox(star(8, 125e6, 0.0), inbox_bytes), *[recursive_doubling] * 8)
        assert times == pytest.approx([3 * 8.0] * 8, rel=1e-12)


# asked for


def test_a_message_that_is_announced_asked_for_and_sent_takes_three_latencies() -> None:
    assert arrivals(with_inbox(pair(M, 0.1), ASKED), [M]) == pytest.approx([1.3], rel=1e-12)


def test_a_message_waits_for_its_receiver_and_then_for_the_answer_alone() -> None:
    async def sender(node: Transport) -> float:
        await node.send(1, "t", block(M))
        return now()

    async def receiver(node: Transport) -> float:
        await asyncio.sleep(10)
        await node.recv(0, "t")
        return now()

    # asked for at 10 s, the sender knows at 10.1 s, has sent by 11.1 s
    assert run(with_inbox(pair(M, 0.1), ASKED), sender, receiver) == pytest.approx([11.1, 11.2], rel=1e-12)
    assert run(pair(M, 0.1), sender, receiver) == pytest.approx([1.0, 10.0], rel=1e-12)


def test_who_asks_any_gets_one_message_and_the_next_when_he_asks_again() -> None:
    async def sender(node: Transport) -> float:
        await node.send(0, "t", block(M))
        return now()

    async def receiver(node: Transport) -> list[int]:
        order = []
        for _ in range(3):
            order.append((await node.recv(ANY, "t")).source)
            await asyncio.sleep(10)
        return order

    order, *left = run(with_inbox(star(4, M, 0.0), ASKED), receiver, *[sender] * 3)
    assert order == [1, 2, 3]
    assert left == pytest.approx([1.0, 12.0, 23.0], rel=1e-12)
    # Unasked, all three share the receiver's link.
    assert run(star(4, M, 0.0), receiver, *[sender] * 3)[1:] == pytest.approx([3.0] * 3, rel=1e-12)


def test_a_message_behind_one_that_nobody_asks_for_waits_with_it() -> None:
    async def sender(node: Transport) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(node.send(1, "first", None))
            group.create_task(node.send(1, "second", None))

    async def receiver(node: Transport) -> None:
        await node.recv(0, "second")

    with pytest.raises(Deadlock):
        SimCluster(with_inbox(pair(), ASKED)).run([sender, receiver])
    run(pair(), sender, receiver)


def test_a_near_message_may_come_in_before_a_far_one_that_was_let_come_earlier() -> None:
    # n2, 1 s away, is let come for whoever asks for anything, but n1 is there first. n2's is for who asks next.
    *links, last = star(3, 1e9, 0.0).links
    cluster = replace(star(3, 1e9, 0.0), links=(*links, replace(last, latency_s=1.0)))

    async def sender(node: Transport) -> None:
        if node.rank == 1:
            await asyncio.sleep(1.5)
        await node.send(0, "t", {"of": node.rank})

    async def receiver(node: Transport) -> list[tuple[int, float]]:
        anything = asyncio.create_task(node.recv(ANY, "t"))
        await asyncio.sleep(1.2)
        of_n1 = asyncio.create_task(node.recv(1, "t"))
        first, at_s = (await anything).source, now()
        of_n1.cancel()
        return [(first, at_s), ((await node.recv(2, "t")).source, now())]

    assert run(with_inbox(cluster, ASKED), receiver, sender, sender)[0] == [(1, 1.5), (2, 3.0)]


def test_a_cancelled_send_makes_room_for_the_next_one() -> None:
    async def sender(node: Transport) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await node.send(1, "dropped", block(M))
        await node.send(1, "t", block(M))

    async def receiver(node: Transport) -> float:
        await asyncio.sleep(0.5)
        await node.recv(0, "t")
        return now()

    assert run(with_inbox(pair(M), ASKED), sender, receiver)[1] == pytest.approx(2.0, rel=1e-12)


def test_a_cancelled_receive_lets_nothing_come_that_was_not_on_its_way() -> None:
    async def receiver(node: Transport) -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await node.recv(0, "t")
        await asyncio.sleep(9)
        await node.recv(0, "t")
        return now()

    async def sender(node: Transport) -> None:
        await asyncio.sleep(2)
        await node.send(1, "t", block(M))

    assert run(with_inbox(pair(M), ASKED), sender, receiver)[1] == pytest.approx(11.0, rel=1e-12)


def test_what_is_sent_to_a_peer_that_ends_without_asking_passes() -> None:
    async def sender(node: Transport) -> float:
        await node.send(1, "t", block(M))
        await node.send(1, "t", block(M))
        return now()

    async def leaver(node: Transport) -> None:
        await asyncio.sleep(5)

    assert run(with_inbox(pair(M), ASKED), sender, leaver)[0] == pytest.approx(7.0, rel=1e-12)


def test_a_send_to_a_peer_that_dies_without_asking_raises() -> None:
    async def sender(node: Transport) -> float:
        with pytest.raises(PeerLost):
            await node.send(1, "t", block(M))
        return now()

    async def victim(node: Transport) -> None:
        await asyncio.sleep(100)

    crash = Crash(spells=((5.0, inf),), rank=1)
    results = SimCluster(with_inbox(pair(M, 0.5), ASKED), faults=SimFaults([crash])).run([sender, victim])
    assert results[0] == pytest.approx(5.5, rel=1e-12)


@pytest.mark.parametrize("busy", [{}, {"send_overhead_s": 0.001, "recv_overhead_s": 0.001}], ids=["idle", "busy"])
def test_a_ring_all_reduce_needs_nobody_to_be_asked_first(busy: dict[str, float]) -> None:
    async def body(node: Transport) -> float:
        await ring_all_reduce(node, block(4 * M), "r")
        return now()

    times = run(with_nodes(with_inbox(star(4, M, 0.01), ASKED), **busy), *[body] * 4)
    # 6 rounds of 1 MB, three latencies of 20 ms and the overheads each
    assert max(times) == pytest.approx(6 * (1.0 + 0.06 + sum(busy.values())), rel=1e-9)


# the budget, on both backends


@pytest.mark.parametrize("backend", ["sim", "sockets"])
@pytest.mark.parametrize(("first_B", "comes_unasked"), [(100_000, True), (300_000, False)])
def test_messages_come_unasked_while_less_than_the_budget_is_unread(
    first_B: int, comes_unasked: bool, backend: str
) -> None:
    """Of a budget of 200 kB; the second message has 32 MB, more than sockets' own buffers hold."""
    asked = asyncio.Event()  # all nodes are in one loop

    async def sender(node: Transport) -> None:
        await node.send(1, "first", torch.zeros(first_B, dtype=torch.uint8))
        second = asyncio.create_task(node.send(1, "second", torch.zeros(32 * M, dtype=torch.uint8)))
        if comes_unasked:
            await second  # or for ever
        else:
            await asyncio.sleep(0.5)
            assert not second.done()
        asked.set()
        await second

    async def receiver(node: Transport) -> None:
        await asked.wait()
        await node.recv(0, "first")
        await node.recv(0, "second")

    if backend == "sim":
        run(star(2, 1e9, 0.0), sender, receiver, inbox_bytes=200_000)
    else:
        assert run_on_sockets([sender, receiver], inbox_bytes=200_000) == [None, None]


def test_a_topology_says_so_for_runs_of_both_backends(tmp_path) -> None:  # type: ignore[no-untyped-def]
    def elapsed_s(inbox: str) -> float:
        overrides = {"topology.inbox": inbox, "stop.steps": 4, "numerics": "none"}
        run = simcluster.run("quickstart", overrides=overrides, out=tmp_path / inbox.replace(" ", ""), report=False)
        found: float = run.summary["elapsed_s"]
        return found

    assert elapsed_s("64 MiB") < elapsed_s("0 B")
    plan = read_experiment("quickstart", {"topology.inbox": "0 B"}, backend="sockets")
    with pytest.raises(UsageError, match="inbox_bytes: found 0, expected a whole number from 1 to"):
        simcluster.run(plan.document, out=tmp_path / "refused")
    assert not (tmp_path / "refused").exists()
