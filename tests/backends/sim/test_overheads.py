"""What messages take of a node itself: overheads against LogGP, one after another; a bandwidth of the node's own."""

from __future__ import annotations

import asyncio

import pytest

from simcluster.errors import PeerLost
from simcluster.topology import Topology, complete, load
from simcluster.transport import ANY, Cost, Transport
from tests.support.clusters import arrivals, block, now, pair, run, star, with_nodes

SEND_S, RECV_S = 0.003, 0.005
M = 1_000_000


def busy(topology: Topology) -> Topology:
    return with_nodes(topology, send_overhead_s=SEND_S, recv_overhead_s=RECV_S)


def test_one_message_takes_what_loggp_says() -> None:
    # o + (k-1) G + L + o; its L lasts until the first byte is there, so it is our latency and the time of that byte
    k, gap_s, latency_s = 250_000, 1 / M, 0.01
    expected = SEND_S + (k - 1) * gap_s + (latency_s + gap_s) + RECV_S
    assert arrivals(busy(pair(M, latency_s)), [k]) == pytest.approx([expected], rel=1e-12)


def test_a_message_without_a_body_takes_overheads_and_latency() -> None:
    assert arrivals(busy(pair(M, 0.01)), [0]) == pytest.approx([SEND_S + 0.01 + RECV_S], rel=1e-12)


def test_a_burst_to_different_peers_leaves_one_overhead_after_the_other() -> None:
    async def sender(node: Transport) -> list[float]:
        left = []

        async def send(to: int) -> None:
            await node.send(to, "t", None)
            left.append(now())

        async with asyncio.TaskGroup() as group:
            for to in range(1, node.size):
                group.create_task(send(to))
        return left

    async def receiver(node: Transport) -> float:
        await node.recv(0, "t")
        return now()

    left, *there = run(busy(star(6, latency_s=0.001)), sender, *[receiver] * 5)
    assert left == pytest.approx([SEND_S * number for number in range(1, 6)], rel=1e-12)
    assert there == pytest.approx([SEND_S * number + 0.002 + RECV_S for number in range(1, 6)], rel=1e-12)


def test_messages_that_come_in_together_are_received_one_after_another() -> None:
    async def sender(node: Transport) -> None:
        await node.send(0, "t", None)

    async def receiver(node: Transport) -> list[float]:
        times = []
        for _ in range(4):
            await node.recv(ANY, "t")
            times.append(now())
        return times

    times = run(busy(star(5, latency_s=0.001)), receiver, *[sender] * 4)[0]
    assert times == pytest.approx([SEND_S + 0.002 + RECV_S * number for number in range(1, 5)], rel=1e-12)


def test_overheads_of_a_stream_overlap_with_the_bytes_before() -> None:
    # 10 ms of bytes each, ready every 3 ms: after the first overhead the link is never idle
    assert arrivals(with_nodes(pair(M), send_overhead_s=SEND_S), [10_000] * 3) == pytest.approx(
        [SEND_S + 0.01, SEND_S + 0.02, SEND_S + 0.03], rel=1e-12
    )


def test_sending_and_receiving_wait_for_each_other() -> None:
    # Both send at 0: out at 3 ms, there at 4 ms; n0 has a second message to send at that very time.
    async def first(node: Transport) -> float:
        await node.send(1, "t", None)
        await asyncio.sleep(0.0005)
        await node.send(1, "t", None)  # asked for at 3.5 ms, out at 6.5 ms
        return now()

    async def second(node: Transport) -> None:
        await node.send(0, "t", None)
        await asyncio.sleep(1)

    async def reader(node: Transport) -> float:
        sending = asyncio.create_task(first(node))
        await node.recv(1, "t")
        assert await sending == pytest.approx(0.0065, rel=1e-12)
        return now()

    # What came in at 4 ms is handled from 6.5 ms on: for 5 ms.
    assert run(busy(pair(M, 0.001)), reader, second)[0] == pytest.approx(0.0115, rel=1e-12)


def test_devices_work_beside_messages() -> None:
    async def worker(node: Transport) -> float:
        sending = asyncio.create_task(node.send(1, "t", None))
        await node.compute(lambda: None, cost=Cost(1e9))  # 1 s
        assert sending.done()
        return now()

    async def receiver(node: Transport) -> None:
        await node.recv(0, "t")

    assert run(with_nodes(pair(), send_overhead_s=0.9), worker, receiver)[0] == 1.0


def test_a_send_that_is_cancelled_in_its_overhead_does_not_arrive() -> None:
    async def sender(node: Transport) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await node.send(1, "t", {"which": 1})
        await node.send(1, "t", {"which": 2})

    async def receiver(node: Transport) -> tuple[object, float]:
        message = await node.recv(0, "t")
        return message.payload.values["which"], now()

    # The cancelled one has taken its 3 ms by then.
    which, when = run(with_nodes(pair(), send_overhead_s=SEND_S), sender, receiver)[1]
    assert (which, when) == (2, pytest.approx(2 * SEND_S, rel=1e-12))


def test_a_node_that_ends_is_lost_only_after_its_last_message_was_handled() -> None:
    async def sender(node: Transport) -> None:
        await node.send(1, "t", None)

    async def receiver(node: Transport) -> float:
        await node.recv(0, "t")
        came = now()
        with pytest.raises(PeerLost):
            await node.recv(0, "t")
        return came

    assert run(busy(pair(M, 0.001)), sender, receiver)[1] == pytest.approx(SEND_S + 0.001 + RECV_S, rel=1e-12)


def test_a_node_that_dies_in_its_overhead_has_sent_nothing() -> None:
    async def sender(node: Transport) -> None:
        sending = asyncio.create_task(node.send(1, "t", None))
        await asyncio.sleep(0.001)
        assert not sending.done()
        raise OSError("gone")

    async def receiver(node: Transport) -> float:
        with pytest.raises(PeerLost):
            await node.recv(0, "t")
        return now()

    with pytest.raises(OSError, match="gone"):
        run(busy(pair(M, 0.002)), sender, receiver)


# a bandwidth of the node's own


def test_a_node_sends_and_receives_no_more_than_its_own_bandwidth_over_all_its_links() -> None:
    async def body(node: Transport) -> float:
        if node.rank == 0:
            async with asyncio.TaskGroup() as group:
                for peer in range(1, node.size):
                    group.create_task(node.send(peer, "out", block(M)))
                    group.create_task(node.recv(peer, "in"))
        else:
            async with asyncio.TaskGroup() as group:
                group.create_task(node.send(0, "in", block(M)))
                group.create_task(node.recv(0, "out"))
        return now()

    four = complete(4, bandwidth="1 MB/s", latency="0 s")
    assert run(four, body, body, body, body)[0] == 1.0
    # 3 MB out and 3 MB in over n0's 2 MB/s
    slow = load(four, overrides={"nodes.n0.host_bandwidth": "2 MB/s"})
    assert run(slow, body, body, body, body)[0] == pytest.approx(3.0, rel=1e-12)
