"""Checks of bodies that fail: the exception ends only its own node, and every waiting peer is notified."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from simcluster.errors import ENDED, PeerLost
from simcluster.testing.harness import Body, RunBodies, nothing
from simcluster.transport import ANY, Transport


class Odd(BaseException):
    """A BaseException that is not an Exception, like SystemExit and KeyboardInterrupt."""


async def waits_for_0(node: Transport) -> None:
    """End with the expected PeerLost of rank 0."""
    await node.recv(0, "never")


async def waits_for_anybody(node: Transport) -> None:
    """End with the loss of rank 0. In real time, the loss of a peer that depends on rank 0 may come first."""
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
    """Assert that *body* ends with *error*, and that peers waiting for it, or for ANY, end with its loss."""
    results: list[Any] = run_bodies([body, waits_for_0, waits_for_anybody])
    assert isinstance(results[0], error), f"the result of a body that raises {error.__name__} is {results[0]!r}"
    for result in results[1:]:
        assert isinstance(result, PeerLost), f"a peer of a body that raises {error.__name__} ends with {result!r}"
        assert result.rank == 0
        assert result.reason != ENDED, "to fail is not to end"
