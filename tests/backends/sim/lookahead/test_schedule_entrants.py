"""Rounds are computed only if nothing else happens meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
import torch

from simcluster.collectives.exchange import exchange
from simcluster.collectives.halving_doubling import halving_all_reduce
from simcluster.collectives.pairwise import pairwise_reduce_scatter
from simcluster.collectives.ring import ring_all_gather, ring_all_reduce, ring_reduce_scatter
from simcluster.payload import pack
from simcluster.topology.model.conditions import Background, BackgroundFlow
from simcluster.transport import Transport
from tests.backends.sim.lookahead.oracle import nothing, now, same, uneven_star
from tests.support.clusters import star, with_nodes


async def ring(node: Transport) -> float:
    await ring_all_reduce(node, torch.empty(4000, device="meta"), "r")
    return now()


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


def test_rounds_beside_background_traffic_that_comes_and_goes_are_simulated() -> None:
    traffic = BackgroundFlow("n0", "n3", Background(1e7, on_s=1e-3, off_s=1e-3))
    assert same(replace(star(4), background=(traffic,)), ring) == [0] * 4


def test_ranks_whose_messages_go_to_a_send_buffer_are_not_held() -> None:
    async def body(node: Transport) -> float:
        async with asyncio.TaskGroup() as group:
            group.create_task(halving_all_reduce(node, nothing(64), "a"))  # rank 1 sends two messages at once
            group.create_task(ring_all_gather(node, nothing(16), "b"))
        return now()

    assert same(with_nodes(star(3), send_buffer_bytes=500), body) == [0] * 6


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
