"""Checks of rejoining: a node that dies and starts again is a new incarnation, which peers tell
from the previous one.

All bodies of a check run in one process, so a body can count its incarnations.
"""

from __future__ import annotations

import asyncio

from simcluster.errors import ENDED, PeerLost
from simcluster.testing.harness import A_MOMENT_S, ComesBack, RunBodies, error_of, nothing, run
from simcluster.transport import ANY, Any_, Transport


async def is_back(node: Transport, rank: int) -> None:
    """Wait until *rank* is among the peers of *node*."""
    while rank not in node.peers:  # noqa: ASYNC110 - the interface has no notification
        await asyncio.sleep(0.01)


async def is_told(node: Transport, source: int | Any_, rank: int) -> None:
    """Wait for a message that never arrives; assert that the recv raises the loss of *rank*."""
    lost = await error_of(PeerLost, node.recv(source, "never"), "recv returned although the peer has died")
    assert lost.rank == rank, f"the wrong rank is lost: {lost}"
    assert lost.reason != ENDED, "to die is not to end"


async def begins_a_life(node: Transport, lives: list[int], last: int = 2) -> None:
    """Append the number of this life to *lives*, and send that number to rank 0.

    Unless this is life number *last*, wait for "go" from rank 0, and then die.
    """
    lives.append(len(lives) + 1)
    await node.send(0, "hello", lives[-1])
    if len(lives) < last:
        await node.recv(0, "go")
        raise ComesBack


def a_peer_that_comes_back_is_lost_first_and_then_there_again(run_bodies: RunBodies) -> None:
    lives: list[int] = []

    async def returns(node: Transport) -> None:
        await begins_a_life(node, lives, last=3)
        assert (await node.recv(0, "t"))["value"] == "for the last"

    async def waits(node: Transport) -> None:
        assert (await node.recv(1, "hello"))["value"] == 1
        for life in (2, 3):
            await node.send(1, "go", None)
            await is_told(node, 1 if life == 2 else ANY, 1)
            await is_back(node, 1)
            message = await node.recv(ANY, "hello")
            assert (message.source, message["value"]) == (1, life), f"of life {life}: {message['value']}"
        await node.send(1, "t", "for the last")

    # Rank 2 has ended before rank 1 rejoins; that must not disturb rank 1.
    run(run_bodies, waits, returns, nothing)
    assert lives == [1, 2, 3]


def nothing_of_one_incarnation_is_taken_for_anothers(run_bodies: RunBodies) -> None:
    lives: list[int] = []

    async def returns(node: Transport) -> None:
        await begins_a_life(node, lives)
        got = (await node.recv(0, "t"))["value"]
        assert got == "for the new one", f"the new incarnation has received what was {got}"
        await node.send(0, "done", None)

    async def peer(node: Transport) -> None:
        await node.send(1, "t", "for the old one")
        await node.send(1, "go", None)
        await is_told(node, 1, 1)
        await is_back(node, 1)
        await node.send(1, "t", "for the new one")
        await node.recv(1, "done")
        value = (await node.recv(1, "hello"))["value"]
        assert value == 2, f"what life {value} had sent is received as that of life 2"

    run(run_bodies, peer, returns)


def whoever_looks_away_meanwhile_is_told_before_anything_new_arrives(run_bodies: RunBodies) -> None:
    lives: list[int] = []

    async def returns(node: Transport) -> None:
        await begins_a_life(node, lives)
        await node.recv(0, "done")

    async def busy(node: Transport) -> None:
        await node.recv(1, "hello")
        await node.send(1, "go", None)
        while len(lives) == 1:  # noqa: ASYNC110 - the interface has no notification
            await asyncio.sleep(A_MOMENT_S)
        await asyncio.sleep(A_MOMENT_S)  # give messages of the new incarnation time to arrive
        try:
            message = await node.recv(ANY, "hello")
        except PeerLost as lost:
            assert lost.rank == 1
        else:
            life = message["value"]
            raise AssertionError(f"received from life {life} before the loss of the previous life was raised")
        assert (await node.recv(ANY, "hello"))["value"] == 2
        await node.send(1, "done", None)

    run(run_bodies, busy, returns)


def whoever_comes_back_deals_with_all_that_are_there(run_bodies: RunBodies) -> None:
    lives: list[int] = []

    async def returns(node: Transport) -> None:
        lives.append(node.rank)
        if lives.count(node.rank) == 1:
            await node.recv(0, "go")
            raise ComesBack
        other = 3 - node.rank
        if node.rank == 1:  # rank 1 rejoins before rank 2 dies
            await is_told(node, other, other)
        await is_back(node, other)
        await node.send(other, "hello", node.rank)
        assert (await node.recv(other, "hello"))["value"] == other
        await node.send(0, "all there", None)

    async def leads(node: Transport) -> None:
        for rank in range(1, node.size):
            await node.send(rank, "go", None)
            await is_told(node, rank, rank)
            await is_back(node, rank)
        for rank in range(1, node.size):
            await node.recv(rank, "all there")

    run(run_bodies, leads, returns, returns)
    assert lives == [1, 2, 1, 2] or lives == [2, 1, 1, 2], f"lives of ranks: {lives}"
