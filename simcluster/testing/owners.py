"""Which rank a task belongs to, where all ranks of a test share one loop: what a rank leaves running ends with it."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any

_owner: contextvars.ContextVar[int] = contextvars.ContextVar("rank that a task belongs to")


class Owners:
    """The tasks of *size* ranks. While it watches a loop, whatever a task of a rank starts is that rank's, too."""

    def __init__(self, size: int) -> None:
        self._tasks: dict[int, list[asyncio.Task[Any]]] = {rank: [] for rank in range(size)}

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on tasks of *loop* are noted."""
        start: Any = self._start  # more of its arguments have names than typeshed has
        loop.set_task_factory(start)

    def begin(self, rank: int) -> None:
        """The running task is *rank*'s."""
        _owner.set(rank)

    def end(self, rank: int) -> None:
        """Cancels what *rank* has left running."""
        for task in self._tasks[rank]:
            task.cancel()

    def _start(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **settings: Any
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **settings)
        if (rank := _owner.get(None)) is not None:
            self._tasks[rank].append(task)
        return task
