"""Parts of the checks: bodies, a way to run them, a way to die, and the rank that owns each task."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeAlias, TypeVar

from simcluster.transport import Transport

E = TypeVar("E", bound=BaseException)
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


async def error_of(kind: type[E], verb: Awaitable[object], otherwise: str) -> E:
    """Return the error of *kind* that *verb* raises; fail, saying *otherwise*, if it returns."""
    try:
        await verb
    except kind as error:
        return error
    raise AssertionError(otherwise)


_owner: contextvars.ContextVar[int] = contextvars.ContextVar("rank that a task belongs to")


class Owners:
    """The tasks of *size* ranks. In a watched loop, a task belongs to the same rank as the task that started it."""

    def __init__(self, size: int) -> None:
        self._tasks: dict[int, list[asyncio.Task[Any]]] = {rank: [] for rank in range(size)}

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start to record the tasks of *loop*."""
        start: Any = self._start  # more of its arguments have names than typeshed has
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
