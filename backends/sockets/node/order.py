"""Loops that count the callbacks of the node's own code, number its tasks and timers, and note what clock it reads.

This file knows the loops of asyncio and uvloop, and the notes of simcluster.replays. It must not know what is run.
Whatever is not the program's (connections, heartbeats) has a context without notes, and goes its usual way.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from simcluster.replays.notes import NOTES

T = TypeVar("T")


class NumberedTask(asyncio.Task[T]):
    """Hashes by its number: sets of tasks, as TaskGroup and `asyncio.wait` hold them, iterate by hash."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], number: int, **options: Any) -> None:
        self.number = number
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self.number


def counting(base: type[Any], later: Callable[..., asyncio.TimerHandle]) -> type[Any]:
    """A *base* loop that counts. *later(loop, delay_s, callback, \\*args, context=)* is its own way to set a timer."""
    soon, clock, new_task = base.call_soon, base.time, base.create_task
    at, in_a_while = base.call_at, base.call_later

    class CountingLoop(base):  # type: ignore[misc]
        """A loop that a run can be replayed from."""

        def call_soon(
            self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
        ) -> Any:
            notes = NOTES.get() if context is None else context.get(NOTES)
            if notes is None:
                return soon(self, callback, *args, context=context)
            return soon(self, notes.run, callback, args, context=context)

        def call_at(
            self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
        ) -> Any:
            notes = NOTES.get()
            if notes is None:
                return at(self, when, callback, *args, context=context)
            delay_s = when - clock(self)
            return later(self, delay_s, notes.fire, next(notes.timers), callback, args, context=context)

        def call_later(
            self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
        ) -> Any:
            notes = NOTES.get()
            if notes is None:
                return in_a_while(self, delay, callback, *args, context=context)
            return later(self, delay, notes.fire, next(notes.timers), callback, args, context=context)

        def time(self) -> float:
            notes = NOTES.get()
            now_s: float = clock(self)
            return now_s if notes is None else notes.read(now_s)

        def create_task(self, coro: Coroutine[Any, Any, T], **options: Any) -> asyncio.Task[T]:
            notes = NOTES.get()
            if notes is None:
                task: asyncio.Task[T] = new_task(self, coro, **options)
                return task
            return NumberedTask(coro, next(notes.tasks), loop=self, **options)

    return CountingLoop


def _asyncios_later(
    loop: Any, delay_s: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None
) -> asyncio.TimerHandle:
    # call_later would go by way of the loop's own call_at and time.
    base = asyncio.SelectorEventLoop
    return base.call_at(loop, base.time(loop) + delay_s, callback, *args, context=context)


def counting_loop(uvloop: bool) -> type[Any]:
    """The class of uvloop's loop, or asyncio's own, that counts."""
    if uvloop:
        import uvloop as module

        return counting(module.Loop, module.Loop.call_later)
    return counting(asyncio.SelectorEventLoop, _asyncios_later)
