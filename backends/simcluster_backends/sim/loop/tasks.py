"""Tasks of the simulated loop, and those of one owner."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Coroutine
from typing import Any, TypeVar

from simcluster_backends.sim.loop.callbacks import owner_of_task

T = TypeVar("T")


class SimTask(asyncio.Task[T]):
    """A task that hashes by its number: `asyncio.wait` and TaskGroup hold tasks in sets, which iterate by hash."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], number: int, **options: Any) -> None:
        self.number = number
        self.owner = owner_of_task.get()
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self.number


class OwnedTasks:
    """The tasks of one owner, held weakly."""

    __slots__ = ("_most", "_refs")

    def __init__(self) -> None:
        self._refs: list[weakref.ref[SimTask[Any]]] = []
        self._most = 32

    def add(self, task: SimTask[Any]) -> None:
        """Hold *task*; forget those that have ended once they may be half of all."""
        refs = self._refs
        refs.append(weakref.ref(task))
        if len(refs) > self._most:
            self._refs = [weakref.ref(task) for task in self.unfinished()]
            self._most = 2 * len(self._refs) + 32

    def unfinished(self) -> list[SimTask[Any]]:
        """Return the tasks that have not ended, in order of creation."""
        found = [ref() for ref in self._refs]
        return [task for task in found if task is not None and not task.done()]
