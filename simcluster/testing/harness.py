"""Parts of every check: bodies, a way to run them, a way to die."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from simcluster.transport import Transport

Body: TypeAlias = Callable[[Transport], Awaitable[Any]]
RunBodies: TypeAlias = Callable[[Sequence[Body]], list[Any]]

A_MOMENT_S = 0.05
"""Long enough on a real loopback for what is under way to arrive; a simulated one does not care."""


class Crash(Exception):
    """Raised by a body to make its node die without a goodbye."""


class ComesBack(Crash):
    """Raised by a body to make its node die without a goodbye, and run its body again as another incarnation."""


def run(run_bodies: RunBodies, *bodies: Body) -> list[Any]:
    """Runs *bodies* and lets the first unexpected exception out."""
    results = run_bodies(bodies)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, Crash):
            raise result
    return results


async def nothing(node: Transport) -> None:
    """A body that ends at once."""
    await asyncio.sleep(0)
