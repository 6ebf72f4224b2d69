"""What a node sends ahead: a send that finds room returns at once, and its bytes leave as they would have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from simcluster_backends.sim import run_bodies
from simcluster_backends.sim.cluster import SimCluster

from simcluster.collectives.exchange import exchange
from simcluster.errors import PeerLost
from simcluster.testing import CHECKS, Crash, RunBodies
from simcluster.topology import loads
from simcluster.transport import Transport
from tests.support.clusters import block, now, pair, run, star, with_nodes

M = 1_000_000


def sends(sizes: Sequence[int], buffer_bytes: int) -> tuple[list[float], list[float]]:
    """When each of the sends from one node returns, and when each message is there: 1 MB/s, 10 ms."""

    async def sender(node: Transport) -> list[float]:
        returned = []
        for size in sizes:
            await node.send(1, "t", block(size))
            returned.append(now())
        return returned

    async def receiver(node: Transport) -> list[float]:
        there = []
        for _ in sizes:
            await node.recv(0, "t")
            there.append(now())
        return there

    returned, there = run(with_nodes(pair(M, 0.01), send_buffer_bytes=buffer_bytes), sender, receiver)
    return returned, there


def test_without_a_buffer_a_send_returns_when_its_bytes_have_left() -> None:
    assert sends([M, M], 0) == ([1.0, 2.0], [1.01, 2.01])


def test_what_finds_room_returns_at_once_and_arrives_no_sooner() -> None:
    assert sends([M, M], 2 * M) == ([0.0, 0.0], [1.01, 2.01])


def test_a_sender_waits_for_its_own_overhead() -> None:
    async def sender(node: Transport) -> list[float]:
        returned = []
        for _ in range(2):
            await node.send(1, "t", block(M))
            returned.append(now())
        return returned

    async def receiver(node: Transport) -> None:
        for _ in range(2):
            await node.recv(0, "t")

    topology = with_nodes(pair(M, 0.01), send_buffer_bytes=2 * M, send_overhead_s=0.25)
    returned, _ = run(topology, sender, receiver)
    assert returned == [0.25, 0.5]


def test_what_finds_no_room_waits_until_it_has_left_and_room_comes_back() -> None:
    # the second does not fit beside the first; when it has left, both have, and the third finds room
    assert sends([M, M, M], M) == ([0.0, 2.0, 2.0], [1.01, 2.01, 3.01])


def test_room_is_for_each_peer_on_its_own() -> None:
    async def sender(node: Transport) -> float:
        for to in (1, 2):
            await node.send(to, "t", block(M))
        return now()

    async def receiver(node: Transport) -> None:
        await node.recv(0, "t")

    returned, *_ = run(with_nodes(star(3, M), send_buffer_bytes=M), sender, receiver, receiver)
    assert returned == 0.0


def test_an_exchange_waits_for_what_it_receives_only() -> None:
    async def quick(node: Transport) -> float:
        await exchange(node, 1, 1, "t", block(M))
        return now()

    async def slow(node: Transport) -> float:
        await exchange(node, 0, 0, "t", block(1000))
        return now()

    # 1 MB one way and 1 kB the other at 1 MB/s: the one that receives little goes on after 1 ms
    assert run(with_nodes(pair(M, 0.0), send_buffer_bytes=M), quick, slow) == pytest.approx([0.001, 1.0])


def test_a_node_that_has_ended_leaves_what_it_sent_and_is_gone_after_that() -> None:
    async def sender(node: Transport) -> float:
        await node.send(1, "t", block(M))
        return now()

    async def receiver(node: Transport) -> tuple[float, float]:
        await node.recv(0, "t")
        there_s = now()
        with pytest.raises(PeerLost):
            await node.recv(0, "more")
        return there_s, now()

    ended, heard = run(with_nodes(pair(M, 0.01), send_buffer_bytes=M), sender, receiver)
    assert ended == 0.0
    assert heard == pytest.approx((1.01, 1.01))


@pytest.mark.parametrize(("inbox_bytes", "end_s"), [(0, 2.0), (M // 2, 2.01)])
def test_two_nodes_that_have_ended_take_in_what_they_hold_for_each_other(inbox_bytes: int, end_s: float) -> None:
    async def sender(node: Transport) -> float:
        for _ in range(2):
            await node.send(1 - node.rank, "t", block(M))
        return now()

    # Neither reads. At 1 MB/s the two messages of each take 2 s to leave; with a small inbox the second one waits
    # until the first has arrived, 10 ms later.
    topology = replace(with_nodes(pair(M, 0.01), send_buffer_bytes=2 * M), inbox_bytes=inbox_bytes)
    cluster = SimCluster(topology)
    assert cluster.run([sender, sender]) == [0.0, 0.0]
    assert cluster.loop.time() == pytest.approx(end_s)


def test_what_a_dead_node_had_not_sent_yet_never_arrives() -> None:
    async def sender(node: Transport) -> None:
        await node.send(1, "t", block(M))
        await asyncio.sleep(0.5)
        raise Crash

    async def receiver(node: Transport) -> float:
        with pytest.raises(PeerLost):
            await node.recv(0, "t")
        return now()

    _, heard = run_bodies([sender, receiver], with_nodes(pair(M, 0.01), send_buffer_bytes=M))
    assert heard == pytest.approx(0.51)


def test_a_peer_that_is_lost_is_told_at_the_next_send() -> None:
    async def sender(node: Transport) -> float:
        await node.send(1, "t", block(M))
        await asyncio.sleep(2)
        with pytest.raises(PeerLost):
            await node.send(1, "t", block(M))
        return now()

    async def dying(node: Transport) -> None:
        await asyncio.sleep(0.5)
        raise Crash

    assert run_bodies([sender, dying], with_nodes(pair(M, 0.01), send_buffer_bytes=M))[0] == 2.0


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_every_promise_of_a_transport_is_kept(check: Callable[[RunBodies], None]) -> None:
    check(lambda bodies: run_bodies(bodies, with_nodes(star(len(bodies)), send_buffer_bytes=4096)))


def test_a_topology_says_how_much() -> None:
    text = "nodes: {a: {device: x86-laptop, send_buffer: 4 MiB}}"
    assert loads(text).nodes["a"].send_buffer_bytes == 4 * 1024**2
    assert loads("nodes: {a: {device: x86-laptop}}").nodes["a"].send_buffer_bytes == 0
