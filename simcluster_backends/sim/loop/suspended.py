"""Owners of tasks who do nothing for a while: what they were about to do waits, in order, until they go on."""

from __future__ import annotations

import contextvars
from collections import deque
from typing import Generic, Protocol, TypeVar

owner_of_task: contextvars.ContextVar[object] = contextvars.ContextVar("owner_of_task", default=None)
"""Whose task is being made: child tasks and callbacks inherit it with their context."""


class Owned(Protocol):
    def owner(self) -> object:
        """Whose callback this is; None for nobody's."""


R = TypeVar("R", bound=Owned)


class Frozen(Generic[R]):
    """Whose callbacks are held back, out of those that become *ready*."""

    __slots__ = ("_held", "_ready", "owners")

    def __init__(self, ready: deque[R]) -> None:
        self._ready = ready
        self._held: dict[object, list[R]] = {}
        self.owners = 0

    def freeze(self, owner: object) -> None:
        """From now on *owner* does nothing."""
        self._held.setdefault(owner, [])
        self.owners = len(self._held)

    def thaw(self, owner: object) -> None:
        """*owner*, if it is frozen, does all that it was about to do."""
        self._ready.extend(self._held.pop(owner, ()))
        self.owners = len(self._held)

    def holds(self, callback: R) -> bool:
        """Keeps *callback* if its owner is frozen."""
        held = self._held.get(callback.owner())
        if held is None:
            return False
        held.append(callback)
        return True
