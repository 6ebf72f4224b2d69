"""Ranks that enter a schedule at different instants wait for each other, unless anything else happens."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from simcluster_backends.sim.cluster import SimCluster

from simcluster.collectives.ring import ring_all_reduce
from simcluster.collectives.subgroup import subgroup
from simcluster.errors import PeerLost
from simcluster.payload import pack
from simcluster.topology import Link, Node, Topology
from simcluster.transport import ANY, Cost, Transport
from tests.backends.sim.lookahead.oracle import (
    SCHEDULES,
    Computing,
    Declining,
    Never,
    nothing,
    now,
    same,
    spans,
    uneven_star,
)
from tests.support.clusters import IDEAL, star

LEAVING_S = 997 * 4 / 125e6
"""How long a message that is sent alongside takes to leave."""

PAUSES_S = st.sampled_from([0.0, 0.0, 0.0, 1e-6, 2e-6, 50e-6, 1e-3, LEAVING_S, 16000 * 4 / 125e6])


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Topology, list[list[float]], list[str]]:
    """A star, by rank how long each pauses before each schedule, and what else it does."""
    size, latency_s = draw(st.integers(2, 9)), draw(st.sampled_from([0.0, 25e-6, 70e-6]))
    duplex: Any = draw(st.sampled_from(["full", "half"]))
    names = [f"n{i}" for i in range(size)]
    rates = draw(st.lists(st.sampled_from([125e6, 125e6, 125e6, 3e7]), min_size=size, max_size=size))
    links = tuple(Link(name, "sw", rate, latency_s, duplex) for name, rate in zip(names, rates, strict=True))
    topology = Topology("drawn", {name: Node(name, IDEAL) for name in names} | {"sw": Node("sw")}, links)
    pauses = draw(st.lists(st.lists(PAUSES_S, min_size=3, max_size=3), min_size=size, max_size=size))
    return (
        topology,
        pauses,
        draw(st.lists(st.sampled_from(["no", "works", "sends", "waits"]), min_size=size, max_size=size)),
    )


@pytest.mark.slow
@pytest.mark.parametrize("schedule", SCHEDULES)
@settings(max_examples=15, deadline=None)
@given(
    clusters(), st.one_of(st.integers(0, 5000), st.just(16000)), st.sampled_from([300, 6000, 10**9]), st.integers(1, 8)
)
def test_a_schedule_is_the_same_whether_it_is_never_offered_declined_or_computed(
    schedule: str, drawn: tuple[Topology, list[list[float]], list[str]], length: int, inbox_bytes: int, apart: int
) -> None:
    topology, pauses, does = drawn

    async def body(node: Transport) -> list[float]:
        times, mine, shift = [], pauses[node.rank], 1 + apart % (node.size - 1)
        source = (node.rank - shift) % node.size

        async def send() -> None:
            await asyncio.sleep(mine[2])
            await node.send((node.rank + shift) % node.size, "alongside", pack(nothing(997)))
            times.append(now())

        async def receive() -> None:
            if does[source] == "sends":
                await node.recv(source, "alongside")
                times.append(now())

        for number in range(2):
            if does[node.rank] == "works":
                for pause_s in mine:
                    await node.compute(int, cost=Cost(IDEAL.flops_per_s * pause_s))
            else:
                await asyncio.sleep(mine[number])
            async with asyncio.TaskGroup() as group:
                if number == 0 and does[node.rank] == "sends":
                    group.create_task(send())
                if number == 0 and does[node.rank] != "waits":
                    group.create_task(receive())
                await SCHEDULES[schedule](node, length, f"s{number}")
                times.append(now())
        if does[node.rank] == "waits":
            await receive()
        return times

    same(topology, body, inbox_bytes=inbox_bytes)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["ring", "tree_near", "halving_far"])
@settings(max_examples=20, deadline=None)
@given(clusters(), st.sampled_from([300, 16000]), st.sampled_from([6000, 10**9]))
def test_schedules_between_pushes_to_a_server_are_the_same_whether_they_are_computed(
    schedule: str, drawn: tuple[Topology, list[list[float]], list[str]], length: int, inbox_bytes: int
) -> None:
    topology, pauses, _ = drawn

    async def serve(node: Transport) -> None:
        others = [(await node.recv(ANY, "push")).source for _ in range(node.size - 1)]
        async with asyncio.TaskGroup() as replies:
            for other in others:
                replies.create_task(node.send(other, "reply", pack(nothing(997))))

    async def body(node: Transport) -> list[float]:
        times = []
        for pause_s in pauses[node.rank]:
            for _ in range(2):
                await node.compute(int, cost=Cost(IDEAL.flops_per_s * pause_s))
            await SCHEDULES[schedule](node, length, f"s{len(times)}")
            times.append(now())
            if node.rank == 0:
                await serve(node)
            else:
                await node.send(0, "push", pack(nothing(997)))
                await node.recv(0, "reply")
            times.append(now())
        return times

    same(topology, body, inbox_bytes=inbox_bytes)


def test_a_rank_with_work_of_its_own_gets_a_message_of_a_held_one_in_time() -> None:
    # Two numbers in three chunks: rank 2's is empty, so it leaves at once, and rank 2 waits for rank 1, which is held.
    async def body(node: Transport) -> None:
        async with asyncio.TaskGroup() as group:
            if node.rank == 2:
                group.create_task(node.compute(lambda: None, cost=Cost(1e6)))  # 1 ms: longer than until the message
            await asyncio.sleep([5e-3, 1e-4, 0.0][node.rank])
            await SCHEDULES["ring"](node, 2, "s")

    simulated = spans(star(3), body, Never)
    assert [span.kind for span in simulated[2]][:3] == ["recv", "send", "compute"]
    assert spans(star(3), body, Declining) == simulated
    assert spans(star(3), body, Computing) == simulated


@pytest.mark.parametrize("schedule", ["ring", "tree_near", "pairwise_reduce_scatter", "halving_far"])
def test_a_latecomer_is_waited_for(schedule: str) -> None:
    async def body(node: Transport) -> list[float]:
        await asyncio.sleep(1e-6 * node.rank)
        await SCHEDULES[schedule](node, 16000, "s")
        return [now()]

    assert all(same(star(8), body))


@pytest.mark.parametrize("schedule", ["tree_near", "tree_far", "doubling_near", "ring"])
def test_of_several_schedules_in_a_row_each_is_computed(schedule: str) -> None:
    async def body(node: Transport) -> list[float]:
        times = []
        for number in range(5):
            await SCHEDULES[schedule](node, 16001, f"s{number}")
            times.append(now())
            await node.compute(lambda: None, cost=Cost(flops=1e6))
        return times

    assert all(same(star(9), body))


def test_ranks_begin_in_the_past_if_the_last_one_does_something_else_first() -> None:
    async def body(node: Transport) -> list[float]:
        times = []
        if node.rank == 3:
            await asyncio.sleep(1.0)
            await node.send(0, "before", pack(nothing(1000)))
            times.append(now())
        async with asyncio.TaskGroup() as group:
            if node.rank == 0:
                group.create_task(node.recv(3, "before"))
            await ring_all_reduce(node, nothing(16000), "r")
        return [*times, now()]

    assert same(star(4), body) == [0] * 4
    # Rank 2's message has left long before, and its time is that of its own entry.
    assert spans(star(4), body, Declining) == spans(star(4), body, Never)


def test_a_rank_that_ends_without_entering_lets_the_others_begin() -> None:
    async def body(node: Transport) -> float:
        await asyncio.sleep(1e-3 * node.rank)
        if node.rank < 3:
            with pytest.raises(PeerLost):
                await ring_all_reduce(node, nothing(16000), "r")
        return now()

    same(star(4), body)


def test_a_message_of_others_may_end_while_all_that_are_held_wait() -> None:
    async def body(node: Transport) -> list[float]:
        # Of 5 ranks, 1 folds into 0; the others wait for it to begin.
        if node.rank == 0:
            await node.send(1, "before", pack(nothing(1000)))
        if node.rank == 1:
            await node.recv(0, "before")
        await SCHEDULES["doubling_near"](node, 16000, "s")
        return [now()]

    assert all(same(star(5), body))


def test_a_deadlock_is_found_while_ranks_are_held() -> None:
    async def body(node: Transport) -> None:
        if node.rank:
            await ring_all_reduce(node, torch.empty(4000, device="meta"), "r")
        else:
            await asyncio.get_running_loop().create_future()

    same(star(4), body)


def test_each_entry_keeps_its_place_among_the_alarms() -> None:
    # 128,000 bytes leave in 1.024 ms; so does the work of rank 3 end, which began at the same instant, but later.
    async def body(node: Transport) -> list[float]:
        if node.rank == 3:
            await node.compute(lambda: None, cost=Cost(flops=1.024e6))
            await node.send(0, "other", pack(nothing(3000)))
        elif node.rank == 0:
            await node.recv(3, "other")
        await SCHEDULES["pairwise_reduce_scatter"](node, 128_000, "s")
        return [now()]

    same(star(4, latency_s=0.0, duplex="half"), body)


def test_no_record_depends_on_the_offer() -> None:
    async def body(node: Transport) -> None:
        await asyncio.sleep(100e-6 * node.rank)
        await SCHEDULES["ring"](node, 16000, "s")

    cluster = SimCluster(star(4, duplex="half"))
    cluster.run([body] * 4)
    assert [n.recorder.record.spans for n in cluster.members] == spans(star(4, duplex="half"), body, Never)


def test_a_flow_that_is_shared_out_only_at_the_end_of_an_instant_does_not_pass_a_held_rank() -> None:
    # Of the tree's ranks 2 begins at once, 1 is held once its message "before" has come, and 0 sleeps. The next message
    # of 2 shares the link of 1 with that of 3: its end is known when the instant at which 1 is held ends.
    async def body(node: Transport) -> float:
        async with asyncio.TaskGroup() as group:
            if node.rank == 3:
                await node.send(1, "long", pack(nothing(1_000_000)))
            if node.rank == 2:
                group.create_task(node.send(1, "before", pack(nothing(1000))))
            if node.rank == 1:
                await node.recv(2, "before")
            await asyncio.sleep([0.01, 0.0, 1e-6, 0.0][node.rank])
            if node.rank < 3:
                await SCHEDULES["tree_near"](subgroup(node, [0, 1, 2]), 1000, "s")
        if node.rank == 1:
            await node.recv(3, "long")
        return now()

    same(star(4, latency_s=0.0), body)


def test_unread_messages_keep_their_order_if_a_held_rank_has_sent_one_of_them() -> None:
    async def body(node: Transport) -> list[int]:
        if node.rank == 0:
            await asyncio.sleep(1e-4)  # the message of rank 1 has left then, and travels until 5 ms
            with pytest.raises(PeerLost):
                await SCHEDULES["pairwise_reduce_scatter"](subgroup(node, [0, 2, 1]), 4000, "s")
        if node.rank == 1:
            await node.send(2, "between", pack(nothing(1000)))
        if node.rank == 2:
            await asyncio.sleep(0.01)
            return [(await node.recv()).source for _ in range(2)]
        return []

    same(uneven_star([125e6] * 3, [25e-6, 5e-3, 25e-6]), body)


def test_a_flow_that_ends_as_held_ranks_begin_makes_no_other_faster_before_that() -> None:
    # The message of 4 leaves at 30 MB/s until 0.1 s, that of 3 at the other 95 MB/s. Rank 0 is held from 0.05 s on, and
    # begins when 4 sends again, before anything is settled at 0.1 s.
    async def body(node: Transport) -> float:
        if node.rank == 4:
            await node.send(5, "slow", pack(nothing(750_000)))
            await node.send(5, "again", pack(nothing(750_000)))
        if node.rank == 3:
            await node.send(5, "fast", pack(nothing(5_000_000)))
        await asyncio.sleep([0.05, 1.0, 1.0, 1.0, 0.0, 0.0][node.rank])
        if node.rank < 4:
            await SCHEDULES["tree_near"](subgroup(node, [0, 1, 2, 3]), 1000, "s")
        if node.rank == 5:
            for source, tag in ((4, "slow"), (4, "again"), (3, "fast")):
                await node.recv(source, tag)
        return now()

    same(uneven_star([125e6] * 4 + [30e6, 125e6], [0.0] * 6), body)
