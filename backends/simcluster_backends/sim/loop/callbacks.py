"""Ready callbacks and timers of the simulated loop, held back while their owner is suspended."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from simcluster.process.generators import RANKS, of_rank
from simcluster_backends.sim.loop.clock import Alarm

T = TypeVar("T")

owner_of_task: contextvars.ContextVar[object] = contextvars.ContextVar("owner_of_task", default=None)
"""The owner of the task being created; child tasks and callbacks inherit it with their context."""


class Timer(asyncio.TimerHandle):
    """A timer handle with its *alarm* in the clock's queue, which is cancelled with the timer."""

    __slots__ = ("alarm",)
    alarm: Alarm
    _context: contextvars.Context  # an attribute of asyncio.Handle

    def run(self, _: asyncio.AbstractEventLoop) -> None:
        if not self._cancelled:
            if RANKS.live:  # each rank has its own random generators
                RANKS.enter(self._context.get(of_rank))
            self._run()

    def owner(self) -> object:
        return self._context.get(owner_of_task)


class Handle(msgspec.Struct, eq=False):
    """A ready callback: like asyncio's Handle, but without asking the loop for its debug mode."""

    callback: Callable[..., object]
    args: tuple[Any, ...]
    context: contextvars.Context
    dropped: bool = False

    def cancel(self) -> None:
        self.dropped = True

    def cancelled(self) -> bool:
        return self.dropped

    def owner(self) -> object:
        return self.context.get(owner_of_task)


def answer_next(ready: deque[Any], future: asyncio.Future[T], result: T) -> None:
    """Set the *result* of *future*; the one task that awaits it runs before all else in *ready*."""
    if not future.done():
        future.set_result(result)
        ready.appendleft(ready.pop())  # set_result has appended the callback that wakes the task


class FrozenCallbacks:
    """The callbacks of suspended owners, *held* back from *ready*, in order, until the owner resumes."""

    def __init__(self, ready: deque[Any]) -> None:
        self._ready = ready
        self.held: dict[object, list[Any]] = {}  # by owner

    def freeze(self, owner: object) -> None:
        """Suspend *owner*."""
        self.held.setdefault(owner, [])

    def thaw(self, owner: object) -> None:
        """Resume *owner*, if it is suspended, and release its callbacks."""
        self._ready.extend(self.held.pop(owner, ()))

    def holds(self, callback: Any) -> bool:
        """Hold *callback* back if its owner is suspended; return whether it is held."""
        held = self.held.get(callback.owner())
        if held is None:
            return False
        held.append(callback)
        return True
