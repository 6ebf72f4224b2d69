"""The tasks of one owner on the simulated loop."""

from __future__ import annotations

import weakref
from asyncio import Task
from typing import Any


class OwnedTasks:
    """The tasks of one owner, held weakly."""

    __slots__ = ("_most", "_refs")

    def __init__(self) -> None:
        self._refs: list[weakref.ref[Task[Any]]] = []
        self._most = 32

    def add(self, task: Task[Any]) -> None:
        """Hold *task*. Forget ended tasks whenever the number of tasks has about doubled."""
        refs = self._refs
        refs.append(weakref.ref(task))
        if len(refs) > self._most:
            self._refs = [weakref.ref(task) for task in self.unfinished()]
            self._most = 2 * len(self._refs) + 32

    def unfinished(self) -> list[Task[Any]]:
        """Return the tasks that have not ended, in order of creation."""
        found = [ref() for ref in self._refs]
        return [task for task in found if task is not None and not task.done()]
