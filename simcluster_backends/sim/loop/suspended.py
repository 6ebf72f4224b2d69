"""Suspended task owners: their callbacks wait, in order, until the owner resumes."""

from __future__ import annotations

import contextvars
from collections import deque
from typing import Generic, Protocol, TypeVar

owner_of_task: contextvars.ContextVar[object] = contextvars.ContextVar("owner_of_task", default=None)
"""The owner of the task being created; child tasks and callbacks inherit it with their context."""


class Owned(Protocol):
    def owner(self) -> object:
        """Return the owner of this callback, or None."""


R = TypeVar("R", bound=Owned)


class Frozen(Generic[R]):
    """The callbacks of suspended owners, held back from *ready*."""

    __slots__ = ("_held", "_ready", "owners")

    def __init__(self, ready: deque[R]) -> None:
        self._ready = ready
        self._held: dict[object, list[R]] = {}
        self.owners = 0

    def freeze(self, owner: object) -> None:
        """Suspend *owner*."""
        self._held.setdefault(owner, [])
        self.owners = len(self._held)

    def thaw(self, owner: object) -> None:
        """Resume *owner*, if it is suspended, and release its callbacks."""
        self._ready.extend(self._held.pop(owner, ()))
        self.owners = len(self._held)

    def holds(self, callback: R) -> bool:
        """Hold *callback* if its owner is suspended."""
        held = self._held.get(callback.owner())
        if held is None:
            return False
        held.append(callback)
        return True
