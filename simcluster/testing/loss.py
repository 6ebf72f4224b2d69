"""Checks of loss: a peer that crashed or ended raises PeerLost only where a node waits for it."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import torch

from simcluster.collectives.exchange import exchange
from simcluster.errors import ENDED, PeerLost
from simcluster.testing.harness import A_MOMENT_S, Body, Crash, RunBodies, error_of, nothing, run
from simcluster.transport import ANY, Transport


def dies_when_told_by(rank: int) -> Body:
    """Return a body that crashes when it receives "die" from *rank*."""

    async def dies(node: Transport) -> None:
        await node.recv(rank, "die")
        raise Crash

    return dies


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
            lost = await error_of(PeerLost, task, "recv returned although the peer is gone")
            assert lost.rank == 0, f"the wrong rank is lost: {lost}"
        assert list(node.peers) == [2], f"peers: {list(node.peers)}"
        assert (await node.recv(0, "last"))["value"] == 1, "what had arrived must still be received"
        for attempt in (node.recv(0, "never"), node.send(0, "t", None)):
            lost = await error_of(PeerLost, attempt, "a verb on a lost peer must raise PeerLost")
            assert lost.rank == 0
        # A node that waits for another peer continues, and a recv from ANY raises each loss only
        # once.
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
        lost = await error_of(PeerLost, node.recv(1, "never"), "recv from a node that has ended must raise PeerLost")
        assert lost.rank == 1

    async def leaver(node: Transport) -> None:
        await node.send(0, "only", 1)

    run(run_bodies, waiter, leaver)


def an_exchange_gets_what_a_peer_sent_before_it_ended(run_bodies: RunBodies) -> None:
    async def late(node: Transport) -> None:
        await node.recv(2, "end")
        await error_of(PeerLost, node.recv(1, "never"), "recv from a node that has ended must raise PeerLost")
        message = await exchange(node, 2, 1, "t", 0)
        assert message["value"] == 1, "the last message of a peer that has ended"

    async def early(node: Transport) -> None:
        await node.send(0, "t", 1)

    async def other(node: Transport) -> None:
        await node.send(0, "end", None)
        await node.recv(0, "t")

    run(run_bodies, late, early, other)


def send_too_much(node: Transport) -> list[asyncio.Task[None]]:
    """Start to send rank 1 more than its inbox and all socket buffers can hold, and return the
    tasks.

    32 messages of 4 MB exceed the inbox of 64 MiB, so the last messages cannot leave. When the
    first one has left, rank 2 receives "begun".
    """
    sends = [asyncio.create_task(node.send(1, "t", torch.zeros(1_000_000))) for _ in range(32)]

    async def begun() -> None:
        await asyncio.wait(sends[:1])
        await node.send(2, "begun", None)

    return [*sends, asyncio.create_task(begun())]


def a_send_that_is_blocked_is_told_of_the_loss(run_bodies: RunBodies) -> None:
    async def sender(node: Transport) -> None:
        *outcomes, _ = await asyncio.gather(*send_too_much(node), return_exceptions=True)
        last = outcomes[-1]
        assert isinstance(last, PeerLost), f"a send to a lost peer gave {last!r}"
        assert last.rank == 1
        lost = [isinstance(outcome, PeerLost) for outcome in outcomes]
        assert lost == sorted(lost), "one ordered stream: what was sent earlier is not lost alone"

    async def witness(node: Transport) -> None:
        await node.recv(0, "begun")
        await asyncio.sleep(A_MOMENT_S)
        await node.send(1, "die", None)

    run(run_bodies, sender, dies_when_told_by(2), witness)


def a_send_to_a_peer_that_ended_returns(run_bodies: RunBodies) -> None:
    async def sender(node: Transport) -> None:
        await asyncio.gather(*send_too_much(node))  # sends that were pending when the peer ended
        try:
            await node.recv(1, "never")
        except PeerLost as lost:
            assert lost.reason == ENDED, f"the reason of a peer that ended is {lost.reason!r}"
        assert list(node.peers) == [2], "from here on this node knows that 1 has ended"
        await node.send(1, "small", 1)
        for _ in range(32):
            await node.send(1, "large", torch.zeros(1_000_000))
        await node.send(2, "enough", None)

    async def leaver(node: Transport) -> None:
        await node.recv(2, "leave")

    async def witness(node: Transport) -> None:
        await node.recv(0, "begun")
        await asyncio.sleep(A_MOMENT_S)
        await node.send(1, "leave", None)
        await node.recv(0, "enough")

    run(run_bodies, sender, leaver, witness)


def recv_from_any_is_told_of_each_loss_once_and_of_no_good_end(run_bodies: RunBodies) -> None:
    async def waiter(node: Transport) -> None:
        assert (await node.recv(3, "only"))["value"] == 3
        await node.send(1, "die", None)
        await node.send(2, "die", None)
        told = []
        for _ in range(2):
            try:
                message = await node.recv(ANY, "never")
            except PeerLost as lost:
                told.append(lost.rank)
            else:
                raise AssertionError(f"recv returned {message!r} although no node sent it")
        assert sorted(told) == [1, 2], f"told of the loss of {told}; 3 ended well, 4 lives"
        await node.send(4, "last", None)
        assert (await node.recv(ANY, "last"))["value"] == 4

    async def ends(node: Transport) -> None:
        await node.send(0, "only", 3)

    async def lives(node: Transport) -> None:
        await node.recv(0, "last")
        await node.send(0, "last", 4)

    run(run_bodies, waiter, dies_when_told_by(0), dies_when_told_by(0), ends, lives)


def recv_from_any_is_told_of_a_loss_though_messages_never_cease(run_bodies: RunBodies) -> None:
    async def busy(node: Transport) -> None:
        await node.send(1, "die", None)
        for _ in range(200):
            await asyncio.sleep(A_MOMENT_S)
            try:
                await node.recv(ANY, "more")
            except PeerLost as lost:
                assert lost.rank == 1
                break
            await node.send(2, "one more", True)
        else:
            raise AssertionError("recv has returned 200 messages since rank 1 was lost, and not raised that")
        await node.send(2, "one more", False)

    async def always_ahead(node: Transport) -> None:
        for _ in range(2):
            await node.send(0, "more", None)
        while (await node.recv(0, "one more"))["value"]:
            await node.send(0, "more", None)

    run(run_bodies, busy, dies_when_told_by(0), always_ahead)


def recv_from_any_ends_when_nobody_is_left(run_bodies: RunBodies) -> None:
    async def waiter(node: Transport) -> None:
        for _ in range(2):  # each recv must raise, not only the first
            await error_of(PeerLost, node.recv(ANY, "never"), "recv returned although no peer is left")
        assert list(node.peers) == []

    run(run_bodies, waiter, nothing, nothing)


# Checks of bodies that fail: an exception ends only the node of its body, and every waiting peer is
# notified.


class Odd(BaseException):
    """A BaseException that is not an Exception, as SystemExit and KeyboardInterrupt are."""


async def waits_for_0(node: Transport) -> None:
    """Wait for a message that rank 0 never sends; the recv is expected to raise PeerLost."""
    await node.recv(0, "never")


async def waits_for_anybody(node: Transport) -> None:
    """Wait for any message until the recv raises the loss of rank 0.

    In real time, the loss of another peer that waits for rank 0 may be raised first.
    """
    while True:
        try:
            await node.recv(ANY, "never")
        except PeerLost as lost:
            if lost.rank == 0:
                raise


def an_exception_of_a_body_is_its_own(run_bodies: RunBodies) -> None:
    async def fails(node: Transport) -> None:
        await asyncio.sleep(0)
        raise LookupError("mine")

    results = run_bodies([fails, nothing])
    assert isinstance(results[0], LookupError), f"the failing body's result is {results[0]!r}"
    assert results[1] is None


def whatever_a_body_raises_its_peers_are_told(run_bodies: RunBodies) -> None:
    async def raises_odd(node: Transport) -> None:
        await asyncio.sleep(0)
        raise Odd

    async def exits(node: Transport) -> None:
        await asyncio.sleep(0)
        sys.exit(3)

    check_that_0_fails(run_bodies, raises_odd, Odd)
    check_that_0_fails(run_bodies, exits, SystemExit)


def an_exit_in_a_task_is_its_bodys_failure(run_bodies: RunBodies) -> None:
    async def child() -> None:
        await asyncio.sleep(0)
        sys.exit(3)

    async def in_a_group(node: Transport) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(child())
            group.create_task(node.recv(1, "never"))

    async def awaited(node: Transport) -> None:
        await asyncio.gather(child(), node.recv(1, "never"))

    for body in (in_a_group, awaited):
        check_that_0_fails(run_bodies, body, SystemExit)


def check_that_0_fails(run_bodies: RunBodies, body: Body, error: type[BaseException]) -> None:
    """Run *body* as rank 0; assert that it ends with *error*, and that each waiting peer ends with
    the loss of rank 0.
    """
    results: list[Any] = run_bodies([body, waits_for_0, waits_for_anybody])
    assert isinstance(results[0], error), f"the result of a body that raises {error.__name__} is {results[0]!r}"
    for result in results[1:]:
        assert isinstance(result, PeerLost), f"a peer of a body that raises {error.__name__} ends with {result!r}"
        assert result.rank == 0
        assert result.reason != ENDED, "to fail is not to end"
