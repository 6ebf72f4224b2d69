"""Checks of loss: a crashed or ended peer is told to whoever waits for it, and only there."""

from __future__ import annotations

import asyncio

from simcluster.errors import PeerLost
from simcluster.testing.harness import Crash, RunBodies, nothing, run
from simcluster.transport import ANY, Transport


def a_crashed_peer_is_lost_to_whoever_waits(run_bodies: RunBodies) -> None:
    async def victim(node: Transport) -> None:
        await node.send(1, "last", 1)
        await node.recv(1, "go")
        raise Crash

    async def waiter(node: Transport) -> None:
        await node.send(2, "alive", None)
        tasks = [asyncio.create_task(node.recv(source, "never")) for source in (0, ANY)]
        elsewhere = asyncio.create_task(node.recv(2, "later"))
        await asyncio.sleep(0)
        await node.send(0, "go", None)
        for task in tasks:
            try:
                await task
            except PeerLost as lost:
                assert lost.rank == 0, f"the wrong rank is lost: {lost}"
            else:
                raise AssertionError("recv returned although the peer is gone")
        assert list(node.peers) == [2], f"peers: {list(node.peers)}"
        assert (await node.recv(0, "last"))["value"] == 1, "what had arrived must still be received"
        for attempt in (node.recv(0, "never"), node.send(0, "t", None)):
            try:
                await attempt
            except PeerLost as lost:
                assert lost.rank == 0
            else:
                raise AssertionError("a verb on a lost peer must raise PeerLost")
        # Whoever waits for somebody else goes on, and the loss is told to ANY only once.
        await node.send(2, "now", None)
        assert (await elsewhere)["value"] == 5
        assert (await node.recv(ANY, "more"))["value"] == 6

    async def bystander(node: Transport) -> None:
        await node.recv(1, "alive")
        await node.recv(1, "now")
        await node.send(1, "later", 5)
        await node.send(1, "more", 6)

    run(run_bodies, victim, waiter, bystander)


def a_peer_that_ended_is_not_waited_for(run_bodies: RunBodies) -> None:
    async def waiter(node: Transport) -> None:
        assert (await node.recv(1, "only"))["value"] == 1
        try:
            await node.recv(1, "never")
        except PeerLost as lost:
            assert lost.rank == 1
        else:
            raise AssertionError("recv from a node that has ended must raise PeerLost")

    async def leaver(node: Transport) -> None:
        await node.send(0, "only", 1)

    run(run_bodies, waiter, leaver)


def an_exception_of_a_body_is_its_own(run_bodies: RunBodies) -> None:
    async def fails(node: Transport) -> None:
        await asyncio.sleep(0)
        raise LookupError("mine")

    results = run_bodies([fails, nothing])
    assert isinstance(results[0], LookupError), f"the failing body's result is {results[0]!r}"
    assert results[1] is None


CHECKS = [
    a_crashed_peer_is_lost_to_whoever_waits,
    a_peer_that_ended_is_not_waited_for,
    an_exception_of_a_body_is_its_own,
]
