"""What the pages of the parameter servers share: who trains, means and blends, replies, and work that news ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch

from simcluster.algorithms.parameter_server.barrier import Replies
from simcluster.algorithms.parameter_server.server import (
    endless,
    unless_told,
)
from simcluster.errors import PeerLost
from simcluster.payload import Message, pack
from simcluster.transport import FREE, Cost, Transport
from simcluster.workloads import quadratic
from tests.support.clusters import now, pair, run, star


def test_batches_that_are_used_up_begin_again() -> None:
    replica = quadratic(features=2, samples=8, batch_size=2).replica(0, 1, 0, 3)
    batches = endless(replica)
    steps = [next(batches).step for _ in range(7)]
    assert steps == [0, 1, 2, 0, 1, 2, 0]


def unless(work_s: float, sent_s: float) -> tuple[Any, float, Any]:
    """(what came of work of *work_s* seconds with a message due at *sent_s*, when, and what is received after it)."""

    async def server(node: Transport) -> None:
        await asyncio.sleep(sent_s)
        await node.send(1, "news", pack(number=7))

    async def worker(node: Transport) -> tuple[Any, float, Any]:
        first = await unless_told(node, "news", node.compute(lambda: "done", cost=Cost(1e9 * work_s)))
        at_s = now()
        await node.compute(lambda: None, cost=FREE)  # the device is free again
        assert now() == at_s
        return first, at_s, first if isinstance(first, Message) else await node.recv(0, "news")

    result: tuple[Any, float, Any] = run(pair(), server, worker)[1]
    return result


def test_news_that_come_first_end_the_work_and_free_the_device() -> None:
    first, at_s, _ = unless(work_s=5.0, sent_s=2.0)
    assert isinstance(first, Message)
    assert first["number"] == 7
    assert at_s == 2.0


def test_work_that_is_done_first_loses_no_message() -> None:
    first, at_s, then = unless(work_s=1.0, sent_s=2.0)
    assert (first, at_s) == ("done", 1.0)
    assert then["number"] == 7


def test_of_news_and_work_at_the_same_moment_none_is_lost() -> None:
    first, at_s, then = unless(work_s=2.0, sent_s=2.0)
    assert at_s == 2.0
    assert then["number"] == 7
    assert isinstance(first, Message) or first == "done"


def test_replies_know_what_each_worker_has_been_told_and_what_is_still_under_way() -> None:
    # 1 MB over 1 MB/s: the reply is under way for a second.
    async def server(node: Transport) -> None:
        async with asyncio.TaskGroup() as group:
            replies = Replies(node, group, "weights")
            assert not replies.newer_than(0, 1)
            assert not replies.under_way_to(1)
            replies.send(1, 4, [torch.zeros(10**6, dtype=torch.uint8)])
            assert replies.newer_than(3, 1)
            assert not replies.newer_than(4, 1)
            await asyncio.sleep(0.5)
            assert replies.under_way_to(1)
            await asyncio.sleep(0.6)
            assert not replies.under_way_to(1)
            replies.lost(PeerLost(1, reason="crashed"))
            assert not replies.newer_than(0, 1)

    async def worker(node: Transport) -> int:
        return int((await node.recv(0, "weights"))["step"])

    assert run(pair(), server, worker)[1] == 4


@pytest.mark.parametrize("enough", [True, False])
def test_a_loss_is_borne_while_enough_are_left(enough: bool) -> None:
    async def body(node: Transport) -> bool:
        async with asyncio.TaskGroup() as group:
            try:
                Replies(node, group, "weights").lost(PeerLost(1, reason="crashed"), enough=enough)
            except PeerLost:
                return True
        return False

    assert run(star(1), body) == [not enough]


def test_what_is_pushed_behind_the_last_step_is_counted_and_its_worker_told() -> None:
    replica = quadratic(features=2, samples=8, batch_size=2).replica(0, 3, 0, 5)

    async def server(node: Transport) -> int:
        async with asyncio.TaskGroup() as group:
            replies = Replies(node, group, "weights")
            replies.send(1, 6, [])
            return await replies.see_off("push", replica)

    async def told(node: Transport) -> None:
        await node.send(0, "push", pack(step=5))
        assert (await node.recv(0, "weights"))["step"] == 6

    async def behind(node: Transport) -> None:
        await node.send(0, "push", pack(step=4))
        assert (await node.recv(0, "weights"))["step"] == 6

    assert run(star(3), server, told, behind)[0] == 2
