"""The rank that owns each task, if ranks share one loop: tasks that a rank leaves behind are cancelled."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any

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
