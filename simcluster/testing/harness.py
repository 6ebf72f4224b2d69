"""Parts of the checks: bodies, a way to run them, a way to die."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from simcluster.transport import Transport

Body: TypeAlias = Callable[[Transport], Awaitable[Any]]
RunBodies: TypeAlias = Callable[[Sequence[Body]], list[Any]]

A_MOMENT_S = 0.05
"""Long enough on a real loopback for messages in flight to arrive; irrelevant to a simulator."""


class Crash(Exception):
    """Raised by a body to make its node die without a goodbye."""


class ComesBack(Crash):
    """Raised by a body to make its node die without a goodbye, and run its body again as another incarnation."""


def run(run_bodies: RunBodies, *bodies: Body) -> list[Any]:
    """Run *bodies*; raise the first unexpected exception."""
    results = run_bodies(bodies)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, Crash):
            raise result
    return results


async def nothing(node: Transport) -> None:
    """A body that ends at once."""
    await asyncio.sleep(0)
