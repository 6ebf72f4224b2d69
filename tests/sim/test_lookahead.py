"""Rounds that are computed instead of simulated change nothing: not one time, byte or message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from simcluster.collectives.binomial import binomial_all_reduce
from simcluster.collectives.bruck import bruck_all_gather
from simcluster.collectives.exchange import exchange, run_rounds
from simcluster.collectives.halving_doubling import halving_all_reduce
from simcluster.collectives.pairwise import pairwise_all_to_all, pairwise_reduce_scatter
from simcluster.collectives.recursive_doubling import doubling_all_gather, doubling_all_reduce
from simcluster.collectives.ring import ring_all_gather, ring_all_reduce, ring_reduce_scatter
from simcluster.payload import pack
from simcluster.rounds import Rounds
from simcluster.topology import Link, Node, Topology
from simcluster.transport import Transport
from simcluster_backends.sim.cluster import Cluster
from simcluster_backends.sim.lookahead import Together
from tests.support.clusters import IDEAL, star


class Skipping(Together):
    """Remembers what it left out."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.left_out: list[int] = []

    async def enter(self, *entry: Any) -> int:
        rounds = await super().enter(*entry)
        self.left_out.append(rounds)
        return rounds


class Never(Together):
    async def enter(self, *entry: Any) -> int:
        return 0


def outcome(topology: Topology, body: Any, way: type[Together], **options: Any) -> tuple[Any, list[Any], Together]:
    """What each rank returned, its counts, and the ring."""
    cluster = Cluster(topology, **options)
    cluster.together = way(cluster.loop, cluster.members, cluster.streams, cluster.membership, cluster.routes)
    ends = cluster.run([body] * len(topology.workers))
    for end in ends:
        if isinstance(end, BaseException):
            raise end
    records = [node.recorder.record for node in cluster.members]
    return ends, [(r.sent_to, r.bytes_received, r.messages_sent) for r in records], cluster.together


def same(topology: Topology, body: Any, **options: Any) -> list[int]:
    """Asserts that both ways agree; returns the rounds that each rank was spared."""
    slow_ends, slow_counts, _ = outcome(topology, body, Never, **options)
    ends, counts, together = outcome(topology, body, Skipping, **options)
    assert ends == slow_ends
    assert counts == slow_counts
    assert isinstance(together, Skipping)
    return together.left_out


def uneven_star(rates: list[float], delays: list[float]) -> Topology:
    names = [f"n{i}" for i in range(len(rates))]
    links = tuple(Link(name, "sw", rate, delay) for name, rate, delay in zip(names, rates, delays, strict=True))
    return Topology("uneven", {name: Node(name, IDEAL) for name in names} | {"sw": Node("sw")}, links)


def links_of(most: int) -> st.SearchStrategy[tuple[list[float], list[float]]]:
    """Rates and delays of two to *most* nodes."""
    return st.integers(2, most).flatmap(
        lambda n: st.tuples(
            st.lists(st.sampled_from([125e6, 125e6, 1e8, 3e7]), min_size=n, max_size=n),
            st.lists(st.sampled_from([25e-6, 25e-6, 0.0, 1e-3]), min_size=n, max_size=n),
        )
    )


def now() -> float:
    return asyncio.get_running_loop().time()


@settings(max_examples=60, deadline=None)
@given(
    links_of(7),
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


Schedule = Callable[[Transport, int, str], Coroutine[Any, Any, object]]


def nothing(length: int) -> torch.Tensor:
    return torch.empty(length, device="meta")


SCHEDULES: dict[str, Schedule] = {
    "ring": lambda node, length, tag: ring_all_reduce(node, nothing(length), tag),
    "ring_reduce_scatter": lambda node, length, tag: ring_reduce_scatter(node, nothing(length), tag),
    "halving_near": lambda node, length, tag: halving_all_reduce(node, nothing(length), tag, first="near"),
    "halving_far": lambda node, length, tag: halving_all_reduce(node, nothing(length), tag, first="far"),
    "doubling_near": lambda node, length, tag: doubling_all_reduce(node, nothing(length), tag, first="near"),
    "doubling_far": lambda node, length, tag: doubling_all_reduce(node, nothing(length), tag, first="far"),
    "tree_near": lambda node, length, tag: binomial_all_reduce(node, nothing(length), tag, first="near"),
    "tree_far": lambda node, length, tag: binomial_all_reduce(node, nothing(length), tag, first="far"),
    "ring_all_gather": lambda node, length, tag: ring_all_gather(node, nothing(length), tag),
    "doubling_all_gather_near": lambda node, length, tag: doubling_all_gather(node, nothing(length), tag, first="near"),
    "doubling_all_gather_far": lambda node, length, tag: doubling_all_gather(node, nothing(length), tag, first="far"),
    "bruck_all_gather": lambda node, length, tag: bruck_all_gather(node, nothing(length), tag),
    "ring_all_gather_unequal": lambda node, length, tag: ring_all_gather(node, nothing(length + node.rank), tag),
    "pairwise_reduce_scatter": lambda node, length, tag: pairwise_reduce_scatter(node, nothing(length), tag),
    "pairwise_all_to_all": lambda node, length, tag: pairwise_all_to_all(
        node, [nothing((length * peer) % 1013) for peer in range(node.size)], tag
    ),
}
ROUNDS = {
    "ring": lambda p: 2 * (p - 1),
    "ring_reduce_scatter": lambda p: p - 1,
    "halving_near": lambda p: 2 * (p.bit_length() - 1),
    "halving_far": lambda p: 2 * (p.bit_length() - 1),
    "doubling_near": lambda p: p.bit_length() - 1,
    "doubling_far": lambda p: p.bit_length() - 1,
    "tree_near": lambda p: 2 * (p.bit_length() - 1),
    "tree_far": lambda p: 2 * (p.bit_length() - 1),
    "ring_all_gather": lambda p: p - 1,
    "doubling_all_gather_near": lambda p: p.bit_length() - 1,
    "doubling_all_gather_far": lambda p: p.bit_length() - 1,
    "bruck_all_gather": lambda p: p.bit_length() - 1,
    "pairwise_reduce_scatter": lambda p: p - 1,
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@settings(max_examples=25, deadline=None)
@given(
    links_of(9),
    st.integers(0, 5000),
    st.sampled_from([300, 6000, 10**9]),
    st.sampled_from(["maxmin", "lv08"]),
    st.integers(1, 8),
)
def test_every_schedule_is_as_simulated(
    schedule: str, links: tuple[list[float], list[float]], length: int, inbox_bytes: int, model: str, apart: int
) -> None:
    async def body(node: Transport) -> list[float]:
        times = []
        for number in range(2):
            await SCHEDULES[schedule](node, length, f"s{number}")
            times.append(now())
            shift = 1 + apart % (node.size - 1)
            async with asyncio.TaskGroup() as group:
                group.create_task(node.send((node.rank + shift) % node.size, "after", pack(nothing(997))))
                group.create_task(node.recv((node.rank - shift) % node.size, "after"))
            times.append(now())
        return times

    same(uneven_star(*links), body, inbox_bytes=inbox_bytes, model=model)


@pytest.mark.parametrize("schedule", ROUNDS)
@pytest.mark.parametrize("size", [4, 16])
def test_equal_nodes_are_spared_all_rounds_of_a_schedule_but_the_last(schedule: str, size: int) -> None:
    async def body(node: Transport) -> float:
        await SCHEDULES[schedule](node, 16000, "s")
        return now()

    assert same(star(size), body) == [ROUNDS[schedule](size) - 1] * size


@pytest.mark.parametrize("schedule", sorted(ROUNDS))
def test_routes_that_share_a_channel_are_simulated(schedule: str) -> None:
    async def body(node: Transport) -> float:
        await SCHEDULES[schedule](node, 16000, "s")
        return now()

    is_tree = schedule.startswith("tree")  # in a full one no rank sends and receives at once
    assert same(star(8, duplex="half"), body) == [5 if is_tree else 0] * 8
    # Between the two switches all share one link.
    names = [f"n{i}" for i in range(8)]
    links = [Link(name, f"s{i // 4}", 125e6, 25e-6) for i, name in enumerate(names)]
    switches = {f"s{i}": Node(f"s{i}") for i in range(2)}
    two = Topology(
        "two", {name: Node(name, IDEAL) for name in names} | switches, (*links, Link("s0", "s1", 1e9, 25e-6))
    )
    spared = same(two, body)
    # The ring's two messages go opposite ways, and the tree's are one after the other.
    assert bool(sum(spared)) == (schedule.startswith("ring") or schedule == "tree_far")


@pytest.mark.parametrize(("schedule", "rounds"), [("doubling_near", 5), ("doubling_far", 5), ("halving_near", 7)])
def test_folds_are_computed_until_a_rank_that_nothing_folds_into_may_leave(schedule: str, rounds: int) -> None:
    async def body(node: Transport) -> float:
        await SCHEDULES[schedule](node, 16000, "s")
        return now()

    # Of 6 ranks 2 fold, and 2 get a start message; before unfolding, one more round is simulated.
    assert same(star(6), body) == [rounds - 2] * 6


def test_an_all_gather_of_unequal_vectors_is_simulated() -> None:
    async def body(node: Transport) -> list[int]:
        found = await ring_all_gather(node, nothing(1000 + (node.rank == 2)), "s")
        return [len(tensor) for tensor in found]

    assert same(star(4), body) == [0] * 4


def test_messages_larger_than_an_inbox_are_computed_if_each_is_the_only_one_between_its_ranks() -> None:
    async def body(node: Transport) -> float:
        await SCHEDULES["tree_near"](node, 16000, "s")
        return now()

    assert same(star(8), body, inbox_bytes=1) == [5] * 8


def test_no_round_is_computed_if_a_rank_leaves_before_all_have_begun_the_next_one() -> None:
    async def body(node: Transport) -> list[float]:
        # Rank 1 sends to rank 0, which then sends to rank 2. Rank 1 may send to rank 2 meanwhile, and does.
        to, source = np.array([[-1, 0, -1], [2, -1, -1]]), np.array([[1, -1, -1], [-1, -1, 0]])
        rounds = Rounds(
            "passed on", 2, lambda k, r: to[k][r], lambda k, r: source[k][r], lambda k, r: 16000, str, nothing(0)
        )
        await run_rounds(node, rounds)
        times = [now()]
        if node.rank == 1:
            await node.send(2, "after", pack(nothing(16000)))
        if node.rank == 2:
            await node.recv(1, "after")
        return [*times, now()]

    assert same(star(3), body) == [0] * 3


def test_routes_without_channels_are_computed() -> None:
    names = [f"n{i}" for i in range(4)]
    links = tuple(Link(name, "sw", 125e6, 25e-6, duplex="free") for name in names)
    free = Topology("free", {name: Node(name, IDEAL) for name in names} | {"sw": Node("sw")}, links)
    assert same(free, ring) == [5] * 4


def test_a_rank_whose_message_would_meet_that_of_another_round_ends_the_computation() -> None:
    async def body(node: Transport) -> float:
        await pairwise_reduce_scatter(node, nothing(16000), "s")
        return now()

    # Rank 0 sends slowly, and rank 1 is sent to by the others meanwhile.
    assert same(uneven_star([1e6, 125e6, 125e6, 125e6], [25e-6] * 4), body) == [0] * 4


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


@pytest.mark.parametrize("is_late", [False, True])
def test_what_a_rank_sends_at_the_same_instant_leaves_after_the_schedules_first_message(is_late: bool) -> None:
    async def body(node: Transport) -> list[float]:
        if is_late and node.rank == 1:
            await asyncio.sleep(1e-3)

        async def alongside() -> float:
            await node.send((node.rank + 1) % node.size, "alongside", pack(torch.empty(5000, device="meta")))
            return now()

        async with asyncio.TaskGroup() as group:
            reducing = group.create_task(ring_reduce_scatter(node, torch.empty(8000, device="meta"), "r"))
            sending = group.create_task(alongside())
            group.create_task(node.recv((node.rank - 1) % node.size, "alongside"))
            await reducing
            return [now(), await sending]

    assert same(star(3), body) == [0, 0, 0]


def test_what_another_rank_sends_at_the_same_instant_leaves_after_the_schedules_first_message() -> None:
    async def body(node: Transport) -> list[float]:
        async with asyncio.TaskGroup() as group:
            reducing = group.create_task(pairwise_reduce_scatter(node, nothing(4896), "s"))
            await asyncio.sleep(0)
            if node.rank == 1:
                await node.send(0, "alongside", pack(nothing(100)))
            if node.rank == 0:
                await node.recv(1, "alongside")
            await reducing
        times = [now()]
        if node.rank in (1, 3):
            await exchange(node, 4 - node.rank, 4 - node.rank, "after", pack(nothing(997)))
        return [*times, now()]

    # The flows that share a channel are added up in the order in which they begin.
    assert same(star(4, latency_s=70e-6, duplex="half"), body) == [0] * 4


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


def test_parts_larger_than_an_inbox_are_simulated_if_one_may_wait_for_room() -> None:
    async def body(node: Transport) -> float:
        return await ring(node)

    # Parts of 4,000 bytes. On equal links each has arrived when its sender has the next one.
    assert same(star(4), body, inbox_bytes=4000) == [5] * 4
    uneven = uneven_star([125e6] * 4, [25e-6, 25e-6, 30e-6, 25e-6])
    assert same(uneven, body, inbox_bytes=4000) == [0] * 4
    assert same(uneven, body, inbox_bytes=4200) == [5] * 4


def test_someone_who_does_something_else_ends_the_guess() -> None:
    async def body(node: Transport) -> float:
        if node.rank == 3:
            await asyncio.sleep(2.0)
        return await ring(node)

    same(star(4), body)


def test_no_node_needs_no_round() -> None:
    assert same(star(1), ring) == [0]


@pytest.mark.parametrize("model", ["maxmin", "lv08"])
def test_both_network_models_agree_with_the_simulation(model: str) -> None:
    assert same(star(5), ring, model=model) == [7] * 5
