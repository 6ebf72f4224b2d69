"""Messages in virtual time, against hand arithmetic: a + M/B, one ordered stream per pair, fair shares."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch
from simcluster_backends.sim import run_bodies
from simcluster_backends.sim.cluster import SimCluster
from simcluster_backends.sim.faults import SimFaults

from simcluster.errors import Deadlock, NeverFinished, PeerLost
from simcluster.topology import Topology
from simcluster.transport import ANY, Transport
from tests.support.clusters import chain, star
from tests.support.node_programs import line_of
from tests.support.plans import plan

MB = torch.zeros(250_000)  # 1 MB


def now() -> float:
    return asyncio.get_running_loop().time()


def run(topology: Topology, *bodies: Any) -> list[Any]:
    results = SimCluster(topology).run(bodies)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


async def idle(node: Transport) -> None:
    await asyncio.sleep(100)  # a node that ends is gone; these tests want it there


def test_a_message_takes_latency_plus_size_over_bandwidth() -> None:
    async def sender(node: Transport) -> float:
        await node.send(1, "t", MB)
        return now()

    async def receiver(node: Transport) -> float:
        await node.recv(0, "t")
        return now()

    # 1 MB at 125 MB/s is 8 ms; two hops of 1 ms. The sender is free when the last byte has left.
    assert run(star(2, latency_s=1e-3), sender, receiver) == [0.008, 0.010]


def test_messages_of_one_pair_follow_each_other_and_latency_overlaps() -> None:
    async def sender(node: Transport) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(node.send(1, "t", MB))

    async def receiver(node: Transport) -> list[float]:
        times = []
        for _ in range(3):
            await node.recv(0, "t")
            times.append(now())
        return times

    # 8 ms each, one after another, each 2 ms later at the other end: sharing would end them together at 26 ms
    assert run(star(2, latency_s=1e-3), sender, receiver)[1] == pytest.approx([0.010, 0.018, 0.026], abs=1e-12)


def test_a_servers_link_is_shared_by_those_who_push() -> None:
    async def worker(node: Transport) -> float:
        await node.send(0, "push", MB)
        return now()

    async def server(node: Transport) -> float:
        for _ in range(3):
            await node.recv(ANY, "push")
        return now()

    # Three times 1 MB into one link of 125 MB/s: 24 ms for all; plus 2 ms of latency for the server.
    times = run(star(4, latency_s=1e-3), server, worker, worker, worker)
    assert times == pytest.approx([0.026, 0.024, 0.024, 0.024], abs=1e-12)


def test_both_ways_at_once_cost_nothing_on_full_and_double_on_half_duplex() -> None:
    async def body(node: Transport) -> float:
        async with asyncio.TaskGroup() as group:
            group.create_task(node.send(1 - node.rank, "t", MB))
            group.create_task(node.recv(1 - node.rank, "t"))
        return now()

    assert run(star(2, latency_s=0.0), body, body) == [0.008, 0.008]
    assert run(star(2, latency_s=0.0, duplex="half"), body, body) == [0.016, 0.016]
    assert run(star(2, latency_s=0.0, duplex="free"), body, body) == [0.008, 0.008]


def test_a_gateway_in_the_chain_carries_the_traffic_of_others() -> None:
    async def far(node: Transport) -> float:
        await node.send(2, "t", MB)
        return now()

    async def near(node: Transport) -> float:
        await node.send(2, "t", MB)
        return now()

    async def receiver(node: Transport) -> None:
        for _ in range(2):
            await node.recv()

    # n0 -> n1 -> n2 and n1 -> n2 share the link n1-n2: 2 MB at 125 MB/s.
    assert run(chain(3, latency_s=0.0), far, near, receiver)[:2] == [0.016, 0.016]


def test_a_cancelled_send_frees_the_link_and_arrives_nowhere() -> None:
    async def doomed(node: Transport) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.008):
                await node.send(2, "t", MB)
        await asyncio.sleep(1)

    async def other(node: Transport) -> float:
        await node.send(2, "t", MB)
        return now()

    async def receiver(node: Transport) -> int:
        message = await node.recv(ANY, "t")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await node.recv(0, "t")
        return message.source

    # Half rate for 8 ms (0.5 MB), then the whole link: 4 ms more.
    _, time, source = run(star(3, latency_s=0.0), doomed, other, receiver)
    assert time == pytest.approx(0.012, abs=1e-12)
    assert source == 1


def test_a_full_inbox_stops_the_sender_until_somebody_receives() -> None:
    async def sender(node: Transport) -> list[float]:
        times = []
        for _ in range(4):
            await node.send(1, "t", MB)
            times.append(now())
        return times

    async def receiver(node: Transport) -> None:
        await asyncio.sleep(1.0)
        for _ in range(4):
            await node.recv()

    cluster = SimCluster(star(2, latency_s=0.0), inbox_bytes=2_000_000)
    # Two messages fill the inbox (2 MB and their headers); the others wait for the receiver's second 1.
    times, _ = cluster.run([sender, receiver])
    assert times == pytest.approx([0.008, 0.016, 1.008, 1.016], abs=1e-12)


def test_a_deadlock_tells_of_every_rank_what_it_waits_for_and_where() -> None:
    async def first(node: Transport) -> None:
        await node.recv(1, "never")

    async def second(node: Transport) -> None:
        await asyncio.sleep(3)
        await asyncio.Event().wait()

    with pytest.raises(Deadlock) as caught:
        run_bodies([first, second], star(2))
    text = str(caught.value)
    assert "deadlock at 3 s" in text
    assert "rank 0 (n0) waits for recv(source=1, tag='never') at " in text
    assert "rank 1 (n1) waits for something outside the transport at " in text
    assert text.count("test_sim_transport.py") == 2


def test_a_deadlock_names_what_lies_unread_and_each_place_where_a_node_waits() -> None:
    async def sends(node: Transport) -> None:
        for _ in range(2):
            await node.send(1, "grads", 0)
        await node.send(1, "own/loss", 0)
        await node.recv(1, "weights")

    async def reads(node: Transport) -> None:
        async def reads_too() -> None:
            await node.recv(0, "bias")

        async with asyncio.TaskGroup() as group:
            group.create_task(reads_too())
            await node.recv(0, "grad")

    with pytest.raises(Deadlock) as caught:
        run_bodies([sends, reads], star(2))
    first, second = caught.value.waits
    place = line_of(sends, "node.recv(")
    assert first == f"rank 0 (n0) waits for recv(source=1, tag='weights') at {place}"
    waits, _, unread = second.partition("; unread: ")
    assert "recv(source=0, tag='bias')" in waits
    main = line_of(reads, 'await node.recv(0, "grad')
    assert f" and {main}" in waits
    assert "(reads_too)" in waits
    assert unread == "2 messages from rank 0 (n0) with tag 'grads', 1 message from rank 0 (n0) with tag 'own/loss'"


def test_a_report_lists_four_kinds_of_unread_messages_and_counts_the_rest() -> None:
    async def sends(node: Transport) -> None:
        for tag in range(7):
            await node.send(1, f"t{tag}", 0)

    async def reads(node: Transport) -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock) as caught:
        run_bodies([sends, reads], star(2))
    assert caught.value.waits[-1].endswith("1 message from rank 0 (n0) with tag 't3', 3 more kinds")  # 7 - 4


def test_polling_for_ever_ends_in_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simcluster_backends.sim.loop.event_loop.IDLE_CALLBACKS_LIMIT", 1000)

    async def poll(node: Transport) -> None:
        while True:
            await asyncio.sleep(0.001)

    async def spin(node: Transport) -> None:
        while True:
            await asyncio.sleep(0)

    for body in (poll, spin):
        with pytest.raises(NeverFinished, match=r"rank 0 \(n0\) waits"):
            run_bodies([body], star(1))


def test_a_crash_is_noticed_one_latency_later_and_only_by_those_who_wait() -> None:
    async def victim(node: Transport) -> None:
        await asyncio.sleep(1000)

    async def waiter(node: Transport) -> float:
        with pytest.raises(PeerLost, match=r"rank 0 \(n0\) is lost: crashed by the fault plan"):
            await node.recv(0, "t")
        return now()

    async def bystander(node: Transport) -> float:
        await asyncio.sleep(3)
        return now()

    topology = star(3, latency_s=1e-3)
    cluster = SimCluster(topology, faults=SimFaults(plan(topology, "kind: crash, node: n0, at: 2 s")))
    results = cluster.run([victim, waiter, bystander])
    assert isinstance(results[0], asyncio.CancelledError)
    assert results[1:] == [2.002, 3.0]


def test_a_node_that_ends_without_its_tasks_leaves_none_behind() -> None:
    ended = []

    async def body(node: Transport) -> None:
        async def child() -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                ended.append(node.rank)

        node.child = asyncio.create_task(child())  # type: ignore[attr-defined]
        await asyncio.sleep(0)

    cluster = SimCluster(star(2))
    cluster.run([body, body])
    assert ended == [0, 1]
    assert cluster.loop.time() == 0.0


def test_many_nodes_may_call_back_longer_without_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    # 4 nodes take 400 naps each: at least 1,600 callbacks, more than 1,000 and at most 4,000.
    monkeypatch.setattr("simcluster_backends.sim.loop.event_loop.IDLE_CALLBACKS_LIMIT", 1000)
    monkeypatch.setattr("simcluster_backends.sim.loop.event_loop.IDLE_CALLBACKS_PER_NODE", 1000)

    async def nap(node: Transport) -> int:
        for _ in range(400):
            await asyncio.sleep(0.001)
        return node.rank

    assert run_bodies([nap] * 4, star(4)) == [0, 1, 2, 3]


def test_a_deadlock_of_many_ranks_shows_ten_of_them() -> None:
    async def waits(node: Transport) -> None:
        await node.recv((node.rank + 1) % node.size, "never")

    with pytest.raises(Deadlock) as caught:
        run_bodies([waits] * 12, star(12))
    assert len(caught.value.waits) == 12
    assert str(caught.value).splitlines()[-2:] == [f"  {caught.value.waits[9]}", "  and 2 more"]
