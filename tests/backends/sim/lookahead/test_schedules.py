"""Rounds that are computed instead of simulated change nothing: not one time, byte or message."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from simcluster_backends.sim.lookahead import ScheduleEntrants, order

from simcluster.collectives.exchange import run_rounds
from simcluster.collectives.pairwise import pairwise_reduce_scatter
from simcluster.collectives.ring import ring_all_gather, ring_all_reduce
from simcluster.payload import pack
from simcluster.rounds import Rounds
from simcluster.topology import Link, Node, Topology
from simcluster.transport import ANY, Transport
from tests.backends.sim.lookahead.oracle import (
    ROUNDS,
    SCHEDULES,
    Computing,
    Never,
    Skipping,
    links_of,
    nothing,
    now,
    outcome,
    same,
    uneven_star,
)
from tests.support.clusters import IDEAL, complete, star


@pytest.mark.slow
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
            # The rank that is out first is in others' way at once.
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


@pytest.mark.slow
@pytest.mark.parametrize("schedule", SCHEDULES)
@settings(max_examples=15, deadline=None)
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


@pytest.mark.parametrize(
    ("schedule", "size", "is_computed"),
    [
        ("ring", 9, False),  # 9 messages a round
        ("ring", 10, True),
        ("pairwise_reduce_scatter", 9, False),
        ("pairwise_reduce_scatter", 10, True),
        ("tree_near", 32, False),  # 62 messages in 10 rounds
        ("tree_near", 64, True),  # 126 in 12
    ],
)
def test_rounds_of_few_messages_are_simulated(schedule: str, size: int, is_computed: bool) -> None:
    async def body(node: Transport) -> float:
        await SCHEDULES[schedule](node, 16000, "s")
        return now()

    class Counting(Skipping):
        fewest = ScheduleEntrants.fewest

    (ends, _), together = outcome(star(size), body, Counting)
    assert (max(together.left_out) > 0) == is_computed
    assert ends == outcome(star(size), body, Never)[0][0]


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

    async def body(node: Transport) -> float:
        await SCHEDULES["ring"](node, 4000, "s")
        return now()

    assert same(free, body) == [5] * 4


def test_a_message_that_would_meet_that_of_another_round_ends_the_computation() -> None:
    async def body(node: Transport) -> float:
        await pairwise_reduce_scatter(node, nothing(16000), "s")
        return now()

    # Rank 0 sends slowly, and rank 1 is sent to by the others meanwhile.
    assert same(uneven_star([1e6, 125e6, 125e6, 125e6], [25e-6] * 4), body) == [0] * 4


def pushing_after(schedule: str) -> Any:
    """A body that returns the sources of pushes, in the order in which they arrive at rank 0 after *schedule*."""

    async def body(node: Transport) -> list[int]:
        await SCHEDULES[schedule](node, 4000, "s")
        if node.rank:
            await node.send(0, "push", pack(nothing(997)))
            return []
        return [(await node.recv(ANY, "push")).source for _ in range(1, node.size)]

    return body


@pytest.mark.parametrize("schedule", ["ring", "ring_reduce_scatter", "ring_all_gather", "doubling_far", "halving_near"])
@pytest.mark.parametrize("size", [3, 4, 5])
def test_ranks_that_leave_at_one_time_go_on_in_the_order_of_the_simulation(schedule: str, size: int) -> None:
    # Pushes that end at one time arrive in the order in which they began.
    assert any(same(star(size), pushing_after(schedule)))


@pytest.mark.parametrize(("most", "expected"), [(2**20, [2, 3, 1]), (0, [1, 2, 3])])
def test_ranks_go_on_by_rank_after_more_messages_than_an_order_is_found_for(
    most: int, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order, "MOST", most)
    (ends, _), _ = outcome(star(4), pushing_after("ring"), Computing)
    assert ends[0] == expected


def test_a_rank_of_a_tree_waits_for_its_children_at_once() -> None:
    async def body(node: Transport) -> None:
        await asyncio.sleep(1e-3 * (node.rank == 0))
        await SCHEDULES["tree_near"](node, 4000, "s")

    assert all(same(star(8), body))


def test_messages_that_come_at_one_time_to_a_rank_that_waits_for_both_are_recorded_in_order() -> None:
    async def body(node: Transport) -> float:
        await asyncio.sleep(1e-3 * (node.rank in (1, 2)))
        await SCHEDULES["tree_far"](node, 4000, "t")
        return now()

    same(complete({(a, b): 25e-6 for b in range(7) for a in range(b)}), body)
