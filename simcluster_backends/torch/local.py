"""A whole cluster in one process and one loop, over real gloo connections on loopback: for tests of the promises."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

from simcluster.runs.record import Recorder
from simcluster.testing import Crash
from simcluster.testing.owners import Owners
from simcluster_backends.common.event_loop import run_to_its_end
from simcluster_backends.common.inbox import INBOX_BYTES
from simcluster_backends.torch.group import Group, HashStore, Place
from simcluster_backends.torch.member import Member
from simcluster_backends.torch.transport import TorchTransport

Body: TypeAlias = Callable[[TorchTransport], Awaitable[Any]]


def run_bodies(
    bodies: Sequence[Body], *, seed: int = 0, inbox_bytes: int = INBOX_BYTES, timeout_s: float = 60.0
) -> list[Any]:
    """Runs body i as rank i of one cluster; returns each one's result, or the exception that it ended with.

    A body that raises `simcluster.testing.Crash` dies without a word; one that raises anything else dies too, and its
    peers are told why. Raises TimeoutError if not all have ended after *timeout_s*.
    """
    store, size = HashStore(), len(bodies)
    with ThreadPoolExecutor(size) as threads:  # all must come for any group to be there
        groups = list(threads.map(lambda rank: Group(store, Place(rank, size, True), 30.0), range(size)))

    async def run() -> list[Any]:
        async with asyncio.timeout(timeout_s):
            return await _run(bodies, groups, seed, inbox_bytes)

    return run_to_its_end(run())


async def _run(bodies: Sequence[Body], groups: Sequence[Group], seed: int, inbox_bytes: int) -> list[Any]:
    names = [f"node{rank}" for rank in range(len(bodies))]
    started_s = time.perf_counter()
    members = [
        Member(
            rank,
            names,
            Recorder(rank, name, lambda: time.perf_counter() - started_s),
            groups[rank],
            inbox_bytes=inbox_bytes,
        )
        for rank, name in enumerate(names)
    ]
    owners = Owners(len(names))
    owners.watch(asyncio.get_running_loop())
    try:
        lives = [
            _live(member, TorchTransport(member, seed), body, owners)
            for member, body in zip(members, bodies, strict=True)
        ]
        return await asyncio.gather(*lives, return_exceptions=True)
    finally:
        await asyncio.gather(*(member.close() for member in members))


async def _live(member: Member, node: TorchTransport, body: Body, owners: Owners) -> Any:
    """A node's life: its body, then its last word, or none. What it started and did not await ends with it."""

    async def own() -> Any:
        owners.begin(member.rank)
        return await body(node)

    life = asyncio.create_task(own())
    try:
        result = await life
        await member.finish()
        return result
    except Crash:
        await member.close()
        raise
    except BaseException as error:
        await member.finish(f"failed: {type(error).__name__}")
        raise
    finally:
        owners.end(member.rank)
