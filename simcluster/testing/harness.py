"""Helpers of the checks: they run bodies, let nodes die, and record the rank of each task."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from simcluster.transport import Transport

E = TypeVar("E", bound=BaseException)
Body = Callable[[Transport], Awaitable[Any]]
RunBodies = Callable[[Sequence[Body]], list[Any]]

A_MOMENT_S = 0.05
"""A delay in which messages in flight arrive over a loopback interface; a simulator needs none."""


class Crash(Exception):
    """The exception that a body raises to make its node die without notifying its peers."""


class ComesBack(Crash):
    """The exception that a body raises to die as with `Crash` and then be run again."""


def run(run_bodies: RunBodies, *bodies: Body) -> list[Any]:
    """Run *bodies* and return their results; raise the first exception that is not a `Crash`."""
    results = run_bodies(bodies)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, Crash):
            raise result
    return results


async def nothing(node: Transport) -> None:
    """Do nothing: a body that ends at once."""
    await asyncio.sleep(0)


async def error_of(kind: type[E], verb: Awaitable[object], otherwise: str) -> E:
    """Await *verb* and return the error of type *kind* that it raises; fail with *otherwise* if it
    does not raise one.
    """
    try:
        await verb
    except kind as error:
        return error
    raise AssertionError(otherwise)


_owner: contextvars.ContextVar[int] = contextvars.ContextVar("rank that a task belongs to")


class Owners:
    """A record of the rank, one of *size*, that each task belongs to.

    In a watched loop, a new task belongs to the rank of the task that started it.
    """

    def __init__(self, size: int) -> None:
        self._tasks: dict[int, list[asyncio.Task[Any]]] = {rank: [] for rank in range(size)}

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on, record the tasks of *loop*."""
        start: Any = self._start  # the parameters of `_start` are not those that typeshed expects
        loop.set_task_factory(start)

    def begin(self, rank: int) -> None:
        """Make *rank* the owner of the running task."""
        _owner.set(rank)

    def end(self, rank: int) -> None:
        """Cancel the tasks that *rank* has left running."""
        for task in self._tasks[rank]:
            task.cancel()

    def _start(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **settings: Any
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **settings)
        if (rank := _owner.get(None)) is not None:
            self._tasks[rank].append(task)
        return task
