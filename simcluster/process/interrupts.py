"""Ctrl-C: work that runs is asked to stop where it can, and is torn out of where it is only if it does not listen.

Python raises KeyboardInterrupt between any two instructions. Inside an event loop that loses a callback, and with it a
task that never ends; inside a destructor it is printed and forgotten.
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
"""How long work may take to reach a point where it can stop."""

TRIES = 3
"""How often KeyboardInterrupt is raised in the middle of work, which may swallow it."""

LAST_S = 10.0
"""How long the end of work that has heard of the Ctrl-C may take."""

SAME_S = 0.5
"""A Ctrl-C that follows another sooner is the same one: a terminal and a wrapper may both pass it on."""

AGAIN_S = 0.01

_innermost: CtrlC | None = None


class CtrlC:
    """While entered, a Ctrl-C calls *stop*, from a signal handler; KeyboardInterrupt is raised at the end of the block.

    With *patience_s* it is raised in the middle of the block if `heard` has not been called by then, and again if the
    work swallows it. A command whose work does not end even so is ended. Outside the main thread, and where the process
    has a handler of its own, nothing changes.
    """

    def __init__(self, stop: Callable[[], object], patience_s: float | None = None) -> None:
        self._stop, self._patience_s = stop, patience_s
        self._before: Any = None
        self._outer: CtrlC | None = None
        self._waits: Any = None  # held until the Ctrl-C is heard
        self._stays: Any = None  # held until the block is left
        self._overdue = self._entered = self.pressed = False

    def heard(self) -> None:
        """The work stops now."""
        waits, self._waits = self._waits, None
        if waits is not None:
            waits.release()

    def __enter__(self) -> CtrlC:
        global _innermost
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            self._outer, _innermost, self._entered = _innermost, self, True
            if before is signal.default_int_handler or isinstance(before, CtrlC | InterruptHandler):
                self._before = before
                signal.signal(signal.SIGINT, self)
        return self

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """The signal's handler."""
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
            # Not threading's: the thread that is interrupted may hold the lock with which that starts threads.
            _thread.start_new_thread(self._watch, (self._waits, self._stays, self._patience_s, number))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        global _innermost
        if not self._entered:
            return
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        _innermost, self._entered = self._outer, False
        self.heard()
        if self._stays is not None:
            self._stays.release()
        if self.pressed and not isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt from None

    @property
    def _answer(self) -> InterruptHandler | None:
        """The answer of the command, found through the `CtrlC` blocks around this one."""
        before = self._before
        while isinstance(before, CtrlC):
            before = before._before
        return before if isinstance(before, InterruptHandler) else None

    def _watch(self, waits: Any, stays: Any, patience_s: float, number: int) -> None:
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
    """Ask the work of the innermost block that listens to stop, as a Ctrl-C does, from the handler of signal *number*.

    Return False if there is no such block.
    """
    if _innermost is None:
        return False
    _innermost(number, frame)
    return True


class InterruptHandler:
    """The command's answer to Ctrl-C, a handler of its signal.

    Until `begins` there is nothing to tear down, and the process ends at once. Then KeyboardInterrupt is raised, once;
    not while torch is loaded, which may abort. A later Ctrl-C, and one after `ends`, ends the process at once: its
    children end with it.
    """

    def __init__(self) -> None:
        self._pressed_s: float | None = None
        self._raises = self._has_said = False

    @property
    def pressed(self) -> bool:
        return self._pressed_s is not None

    def begins(self) -> None:
        """From now on there is something to tear down."""
        sys.unraisablehook = self._swallowed
        self._raises = True

    def ends(self, *, has_said: bool = False) -> None:
        """There is nothing to tear down any more. *has_said*: that the command was interrupted, if it was."""
        self._raises, self._has_said = False, has_said

    def say(self) -> None:
        """Say, once, that the command was interrupted."""
        if not self._has_said:
            self._has_said = True
            with suppress(OSError):
                os.write(2, b"interrupted\n")

    def count(self) -> None:
        """Count a Ctrl-C, which another handler may deal with; end the process at the second one."""
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
        """An exception that Python cannot raise, from a destructor say: a Ctrl-C comes again a little later."""
        if not issubclass(found.exc_type, KeyboardInterrupt):
            sys.__unraisablehook__(found)
            return
        self._pressed_s = None
        threading.Timer(AGAIN_S, _signal_main, (signal.SIGINT,)).start()


def _signal_main(number: int) -> None:
    """Have the main thread handle signal *number*, also if it waits in the system."""
    if sys.platform == "win32":
        _thread.interrupt_main(signal.Signals(number))
    else:
        signal.pthread_kill(threading.main_thread().ident or 0, number)


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
