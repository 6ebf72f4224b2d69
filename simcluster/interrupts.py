"""Ctrl-C: work that runs is asked to stop where it can, and is torn out of where it is only if it does not listen.

Python raises KeyboardInterrupt between any two instructions. Inside an event loop that loses a callback, and with it a
task that never ends; inside a destructor it is printed and forgotten. This file knows signals. It must not know what
runs.
"""

from __future__ import annotations

import _thread
import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine
from types import FrameType, TracebackType
from typing import Any, Generic, TypeVar

T = TypeVar("T")

PATIENCE_S = 1.0
"""How long work may take to reach a point where it can stop."""


class CtrlC:
    """While entered, a Ctrl-C calls *stop*, from a signal handler; KeyboardInterrupt is raised at the end of the block.

    With *patience_s* it is raised in the middle of the block if `heard` has not been called by then. Outside the main
    thread, and where the process has a handler of its own, nothing changes.
    """

    def __init__(self, stop: Callable[[], object], patience_s: float | None = None) -> None:
        self._stop, self._patience_s = stop, patience_s
        self._before: Any = None
        self._waits: Any = None  # held until the Ctrl-C is heard
        self._overdue = self.pressed = False

    def heard(self) -> None:
        """The work stops now."""
        waits, self._waits = self._waits, None
        if waits is not None:
            waits.release()

    def __enter__(self) -> CtrlC:
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            if before is signal.default_int_handler or isinstance(before, CtrlC | Answer):
                self._before = before
                signal.signal(signal.SIGINT, self)
        return self

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """The signal's handler."""
        if self._overdue:
            self._overdue = False
            raise KeyboardInterrupt
        if number == signal.SIGINT and isinstance(self._before, Answer):
            self._before.count()
        self.pressed = True
        self._stop()
        if self._patience_s is not None and self._waits is None:
            self._waits = _thread.allocate_lock()
            self._waits.acquire()
            # Not threading's: the thread that is interrupted may hold the lock with which that starts threads.
            _thread.start_new_thread(self._watch, (self._waits, self._patience_s))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._before is None:
            return
        signal.signal(signal.SIGINT, self._before)
        self.heard()
        if self.pressed and not isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt from None

    def _watch(self, waits: Any, patience_s: float) -> None:
        if not waits.acquire(timeout=patience_s):
            self._overdue = True
            self._waits = None
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


class Answer:
    """The command's answer: the base class tells `CtrlC` that it may take its place for a while."""

    def count(self) -> None:
        """There was a Ctrl-C, which another handler deals with."""
        raise NotImplementedError


class Cancellable(Generic[T]):
    """A coroutine that any thread, or a signal's handler, may cancel, even before it begins."""

    def __init__(self, main: Coroutine[Any, Any, T]) -> None:
        self._main = main
        self._cancelled = False
        self._cancel: Callable[[], object] | None = None

    def cancel(self) -> None:
        self._cancelled = True
        if self._cancel is not None:
            self._cancel()

    async def run(self) -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self._cancel = lambda: None if loop.is_closed() else loop.call_soon_threadsafe(task.cancel)
        if self._cancelled:
            self._main.close()
            raise asyncio.CancelledError
        return await self._main
