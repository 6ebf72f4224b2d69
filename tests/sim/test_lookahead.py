"""Rounds that are computed instead of simulated change nothing: not one time, byte or message."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from simcluster.collectives import ring_all_reduce
from simcluster.payload import pack
from simcluster.topology import Link, Node, Topology
from simcluster.transport import Transport
from simcluster_backends.sim.cluster import Cluster
from simcluster_backends.sim.lookahead import Ring
from tests.support.clusters import IDEAL, star


class Skipping(Ring):
    """Remembers what it left out."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.left_out: list[int] = []

    async def enter(self, *entry: Any) -> int:
        rounds = await super().enter(*entry)
        self.left_out.append(rounds)
        return rounds


class Never(Ring):
    async def enter(self, *entry: Any) -> int:
        return 0


def outcome(topology: Topology, body: Any, ring: type[Ring], **options: Any) -> tuple[Any, list[Any], Ring]:
    """What each rank returned, its counts, and the ring."""
    cluster = Cluster(topology, **options)
    cluster.ring = ring(cluster.loop, cluster.members, cluster.streams, cluster.membership)
    ends = cluster.run([body] * len(topology.workers))
    for end in ends:
        if isinstance(end, BaseException):
            raise end
    records = [node.recorder.record for node in cluster.members]
    return ends, [(r.sent_to, r.bytes_received, r.messages_sent) for r in records], cluster.ring


def same(topology: Topology, body: Any, **options: Any) -> list[int]:
    """Asserts that both ways agree; returns the rounds that each rank was spared."""
    slow_ends, slow_counts, _ = outcome(topology, body, Never, **options)
    ends, counts, ring = outcome(topology, body, Skipping, **options)
    assert ends == slow_ends
    assert counts == slow_counts
    assert isinstance(ring, Skipping)
    return ring.left_out


def uneven_star(rates: list[float], delays: list[float]) -> Topology:
    names = [f"n{i}" for i in range(len(rates))]
    links = tuple(Link(name, "sw", rate, delay) for name, rate, delay in zip(names, rates, delays, strict=True))
    return Topology("uneven", {name: Node(name, IDEAL) for name in names} | {"sw": Node("sw")}, links)


def now() -> float:
    return asyncio.get_running_loop().time()


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 7).flatmap(
        lambda n: st.tuples(
            st.lists(st.sampled_from([125e6, 125e6, 1e8, 3e7]), min_size=n, max_size=n),
            st.lists(st.sampled_from([25e-6, 25e-6, 0.0, 1e-3]), min_size=n, max_size=n),
        )
    ),
    st.integers(0, 5000),
    st.integers(1, 3),
)
def test_every_time_and_byte_is_the_simulations_own(
    links: tuple[list[float], list[float]], length: int, repeats: int
) -> None:
    async def body(node: Transport) -> list[float]:
        times = []
        for number in range(repeats):
            await ring_all_reduce(node, torch.empty(length, device="meta"), f"r{number}")
            times.append(now())
            # Whoever is out first is in others' way at once.
            other = (node.rank + 2) % node.size
            if other != node.rank:
                async with asyncio.TaskGroup() as group:
                    group.create_task(node.send(other, "after", pack(torch.empty(997, device="meta"))))
                    group.create_task(node.recv((node.rank - 2) % node.size, "after"))
                times.append(now())
        return times

    same(uneven_star(*links), body)


def test_equal_nodes_are_spared_all_rounds_but_the_last() -> None:
    async def body(node: Transport) -> float:
        await ring_all_reduce(node, torch.empty(8000, device="meta"), "r")
        return now()

    # 2 (8 - 1) rounds
    assert same(star(8), body) == [13] * 8


async def ring(node: Transport) -> float:
    await ring_all_reduce(node, torch.empty(4000, device="meta"), "r")
    return now()


def test_a_latecomer_is_waited_for_by_simulation() -> None:
    async def body(node: Transport) -> float:
        await asyncio.sleep(1e-6 * (node.rank == 2))
        return await ring(node)

    assert same(star(4), body) == [0] * 4


def test_two_rings_at_once_share_their_ways_and_both_come_to_an_end() -> None:
    async def body(node: Transport) -> float:
        async with asyncio.TaskGroup() as group:
            for number in range(2):
                group.create_task(ring_all_reduce(node, torch.empty(4000, device="meta"), f"r{number}"))
        return now()

    assert same(star(4), body) == [0] * 8


def test_a_timer_that_may_interfere_is_waited_for_by_simulation() -> None:
    async def body(node: Transport) -> float:
        async def interfere() -> None:
            await asyncio.sleep(50e-6)
            await node.send(2, "between", torch.empty(1000, device="meta"))

        if node.rank == 0:
            other = asyncio.create_task(interfere())
        end_s = await ring(node)
        if node.rank == 0:
            await other
        if node.rank == 2:
            await node.recv(0, "between")
        return end_s

    assert same(star(4), body) == [0] * 4


def test_a_timer_after_the_end_interferes_with_nothing() -> None:
    async def body(node: Transport) -> float:
        async with asyncio.timeout(1.0):
            return await ring(node)

    assert same(star(4), body) == [5] * 4


def test_a_message_under_way_is_let_arrive() -> None:
    async def body(node: Transport) -> float:
        if node.rank == 0:
            await node.send(1, "before", torch.empty(10**6, device="meta"))
        await asyncio.sleep(1.0 - now())
        if node.rank == 0:
            await node.send(1, "before", torch.empty(0, device="meta"))
        end_s = await ring(node)
        if node.rank == 1:
            await node.recv(0, "before")
            await node.recv(0, "before")
        return end_s

    assert same(star(4), body) == [0] * 4


def test_ways_that_share_a_channel_are_simulated() -> None:
    async def body(node: Transport) -> float:
        return await ring(node)

    assert same(star(4, duplex="half"), body) == [0] * 4


def test_parts_larger_than_an_inbox_are_simulated() -> None:
    async def body(node: Transport) -> float:
        return await ring(node)

    # Parts of 4,000 bytes.
    assert same(star(4), body, inbox_bytes=4000) == [0] * 4
    assert same(star(4), body, inbox_bytes=4001) == [5] * 4


def test_someone_who_does_something_else_ends_the_guess() -> None:
    async def body(node: Transport) -> float:
        if node.rank == 3:
            await asyncio.sleep(2.0)
        return await ring(node)

    same(star(4), body)


def test_values_are_never_skipped() -> None:
    async def body(node: Transport) -> list[float]:
        total = await ring_all_reduce(node, torch.full((8,), float(node.rank)), "r")
        return list(total.tolist())

    assert same(star(4), body) == []
    ends, _, _ = outcome(star(4), body, Skipping)
    assert ends == [[6.0] * 8] * 4


def test_no_node_needs_no_round() -> None:
    assert same(star(1), ring) == [0]


@pytest.mark.parametrize("model", ["maxmin", "lv08"])
def test_both_network_models_agree_with_the_simulation(model: str) -> None:
    assert same(star(5), ring, model=model) == [7] * 5
