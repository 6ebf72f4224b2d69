"""Rounds are as simulated where messages wait for room in an inbox."""

from __future__ import annotations

import asyncio

import pytest

from simcluster.collectives.halving_doubling import halving_all_reduce
from simcluster.collectives.ring import ring_all_gather
from simcluster.payload import pack
from simcluster.transport import Transport
from tests.backends.sim.lookahead.oracle import nothing, now, same, uneven_star
from tests.support.clusters import star


async def pushes(node: Transport) -> list[int]:
    """Let all push to rank 0; return the order of arrival there."""
    if node.rank == 0:
        return [(await node.recv(tag="push")).source for _ in range(node.size - 1)]
    await node.send(0, "push", pack(nothing(997)))
    return []


@pytest.mark.parametrize("late", range(1, 5))
@pytest.mark.parametrize("inbox_bytes", [6000, 16_061])
def test_ranks_go_on_in_order_where_each_message_waits_until_the_one_before_is_taken(
    late: int, inbox_bytes: int
) -> None:
    async def body(node: Transport) -> list[int]:
        await asyncio.sleep(0)
        if node.rank in (late, 4):
            await asyncio.sleep(0)
        await ring_all_gather(node, nothing(4000), "g")
        return await pushes(node)

    assert same(star(5), body, inbox_bytes=inbox_bytes) == [3] * 5


def test_ranks_go_on_in_order_where_some_rounds_are_between_the_same_two() -> None:
    async def body(node: Transport) -> list[int]:
        if node.rank in (1, 2):
            await asyncio.sleep(0)
        await halving_all_reduce(node, nothing(4000), "h", first="far")
        return await pushes(node)

    assert same(star(4), body, inbox_bytes=300) == [3] * 4


def test_a_message_that_makes_room_for_those_of_a_held_rank_is_not_let_arrive() -> None:
    # The reply to rank 1 travels for 1 ms. Four messages of rank 0 to it, 848 bytes each, begin before it arrives, and
    # with it there is room for three of them.
    async def body(node: Transport) -> float:
        if node.rank == 0:
            await node.send(1, "before", pack(nothing(997)))
        if node.rank == 1:
            await node.recv(0, "before")
        await asyncio.sleep(1e-4 * (node.rank > 1))
        await ring_all_gather(node, nothing(197), "g")
        return now()

    same(uneven_star([125e6] * 5, [25e-6, 1e-3, 25e-6, 25e-6, 25e-6]), body, inbox_bytes=6000)
