"""Ctrl-C: ask running work to stop at a safe point, and raise KeyboardInterrupt in it only if it
does not.

Python raises KeyboardInterrupt between any two instructions. Inside an event loop that loses a
callback, so that a task never ends; inside a destructor the exception is printed and forgotten.
"""

from __future__ import annotations

import _thread
import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Generic, NoReturn, TypeVar

from simcluster.process.exits import INTERRUPTED

T = TypeVar("T")

PATIENCE_S = 1.0
"""The time after a Ctrl-C in which work should reach a point where it can stop."""

TRIES = 3
"""The number of times that KeyboardInterrupt is raised in work that may swallow the exception."""

LAST_S = 10.0
"""The time in which work should end after it has noticed a Ctrl-C."""

SAME_S = 0.5
"""The time within which a second Ctrl-C counts as the first one.

A terminal and a wrapper may both pass one on.
"""

AGAIN_S = 0.01
"""The time after which a swallowed Ctrl-C is raised again."""

_innermost: CtrlC | None = None
"""The innermost `CtrlC` block that the process is in."""


class CtrlC:
    """A block in which a Ctrl-C calls *stop*, in a signal handler; KeyboardInterrupt is raised at
    the block's end.

    With *patience_s*, KeyboardInterrupt is raised in the middle of the block if `heard` is not
    called within this time, and again if the work swallows it. If the work of a command still does
    not end, its process is ended. The block has no effect outside the main thread, or if the
    process has installed another handler.
    """

    def __init__(self, stop: Callable[[], object], patience_s: float | None = None) -> None:
        self._stop, self._patience_s = stop, patience_s
        self._before: Any = None
        self._outer: CtrlC | None = None
        self._waits: Any = None  # a lock that is released when the work has noticed the Ctrl-C
        self._stays: Any = None  # a lock that is released when the block is left
        self._overdue = self._entered = self.pressed = False

    def heard(self) -> None:
        """Note that the work has noticed the Ctrl-C and stops. The work calls this."""
        waits, self._waits = self._waits, None
        if waits is not None:
            waits.release()

    def __enter__(self) -> CtrlC:
        global _innermost
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            self._outer = _innermost
            _innermost = self
            self._entered = True
            if before is signal.default_int_handler or isinstance(before, CtrlC | InterruptHandler):
                self._before = before
                signal.signal(signal.SIGINT, self)
        return self

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal *number*."""
        if self._overdue:
            self._overdue = False
            raise KeyboardInterrupt
        if number == signal.SIGINT and self._answer is not None:
            self._answer.count()
        self.pressed = True
        self._stop()
        if self._patience_s is not None and self._stays is None:
            self._waits, self._stays = _thread.allocate_lock(), _thread.allocate_lock()
            self._waits.acquire()
            self._stays.acquire()
            # Use no threading.Thread: the interrupted code may hold the lock that threading needs
            # to start one.
            _thread.start_new_thread(self._watch, (self._waits, self._stays, self._patience_s, number))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        global _innermost
        if not self._entered:
            return
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        _innermost = self._outer
        self._entered = False
        self.heard()
        if self._stays is not None:
            self._stays.release()
        if self.pressed and not isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt from None

    @property
    def _answer(self) -> InterruptHandler | None:
        """The handler that the command installed before all `CtrlC` blocks around this one.

        None if there is no such handler.
        """
        before = self._before
        while isinstance(before, CtrlC):
            before = before._before
        return before if isinstance(before, InterruptHandler) else None

    def _watch(self, waits: Any, stays: Any, patience_s: float, number: int) -> None:
        """Raise KeyboardInterrupt in the main thread, or end the process, if the work does not stop
        in time.

        This runs in a separate thread.
        """
        has_heard = waits.acquire(timeout=patience_s)
        for _ in range(TRIES):
            if has_heard:
                break
            self._overdue = True
            again = signal.SIGINT if self._before is not None else number
            _signal_main(again)
            has_heard = waits.acquire(timeout=patience_s)
        if number != signal.SIGINT or self._answer is None:
            return
        if not (has_heard and stays.acquire(timeout=LAST_S)):
            self._answer.end_at_once()


def stop_innermost(number: int, frame: FrameType | None) -> bool:
    """Ask the work of the innermost `CtrlC` block to stop, as a Ctrl-C does.

    Call this in the handler of the signal *number*.

    Return False if there is no such block.
    """
    if _innermost is None:
        return False
    _innermost(number, frame)
    return True


class InterruptHandler:
    """The handler of Ctrl-C in a command.

    The first Ctrl-C between `begins` and `ends` raises KeyboardInterrupt. Any other ends the
    process at once: before and after, there is nothing to tear down, and during an import of torch
    an exception might abort the process. The children of the process end with it.
    """

    def __init__(self) -> None:
        self._pressed_s: float | None = None
        self._raises = self._has_said = False

    @property
    def pressed(self) -> bool:
        return self._pressed_s is not None

    def begins(self) -> None:
        """Note that the command begins: from now on, a Ctrl-C raises KeyboardInterrupt."""
        sys.unraisablehook = self._swallowed
        self._raises = True

    def ends(self, *, has_said: bool = False) -> None:
        """Note that the command has ended: from now on, a Ctrl-C ends the process at once.

        *has_said*: the command has printed that it was interrupted.
        """
        self._raises = False
        self._has_said = has_said

    def say(self) -> None:
        """Print that the command was interrupted, unless that has been printed."""
        if not self._has_said:
            self._has_said = True
            with suppress(OSError):
                os.write(2, b"interrupted\n")

    def count(self) -> None:
        """Count a Ctrl-C that this or another handler answers; end the process at the second
        one.
        """
        now_s = time.monotonic()
        if self._pressed_s is not None and now_s - self._pressed_s > SAME_S:
            self.end_at_once()
        if self._pressed_s is None:
            self._pressed_s = now_s

    def __call__(self, number: int, frame: FrameType | None) -> None:
        before = self._pressed_s
        self.count()
        torch_loads = getattr(getattr(sys.modules.get("torch"), "__spec__", None), "_initializing", False)
        if not self._raises or torch_loads:
            self.end_at_once()
        if before is None:
            raise KeyboardInterrupt

    def end_at_once(self) -> NoReturn:
        """End the process; its children end with it."""
        self.say()
        os._exit(INTERRUPTED)

    def _swallowed(self, found: Any) -> None:
        """Handle an exception that Python could not raise, such as one in a destructor.

        A KeyboardInterrupt is repeated a little later; all others are printed as usual.
        """
        if not issubclass(found.exc_type, KeyboardInterrupt):
            sys.__unraisablehook__(found)
            return
        self._pressed_s = None
        threading.Timer(AGAIN_S, _signal_main, (signal.SIGINT,)).start()


def _signal_main(number: int) -> None:
    """Send signal *number* to the main thread, which also interrupts its system calls."""
    if sys.platform == "win32":
        _thread.interrupt_main(signal.Signals(number))
    else:
        signal.pthread_kill(threading.main_thread().ident or 0, number)


class Cancellable(Generic[T]):
    """A coroutine that any thread or signal handler can cancel, even before it begins."""

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
