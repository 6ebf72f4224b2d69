"""How the process ends: in order if it can, and without Python's own ending where that would abort.

Python's ending destroys objects while daemon threads and half-run coroutines still hold tensors, and torch answers that
with an abort.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

from simcluster.process.interrupts import Answer

INTERRUPTED = 130
"""The exit code after Ctrl-C: 128 and the number of the signal, as shells have it."""

SAME_S = 0.5
"""A Ctrl-C that follows another sooner is the same one: a terminal and a wrapper may both pass it on."""

AGAIN_S = 0.01

_stuck: list[threading.Thread] = []
_waiting: list[threading.Thread] = []


def left_behind(thread: threading.Thread, *, waits: bool = False) -> None:
    """*thread* runs work that may never end: unless it does, the process ends without Python's own ending.

    One that only *waits*, in a library that has forgotten it, disturbs Python's ending rarely: that is left out where
    the exit code is known, and only there.
    """
    if waits:
        _waiting.append(thread)
        return
    if not _stuck:
        atexit.register(_leave_the_stuck)
    _stuck.append(thread)


def any_stuck() -> bool:
    """Whether a thread that was left behind is still there."""
    return any(thread.is_alive() for thread in (*_stuck, *_waiting))


def leave(code: int) -> NoReturn:
    """End the process with *code* once everything is flushed and all that was registered with atexit has run."""
    atexit.unregister(_leave_the_stuck)
    with suppress(Exception):
        atexit._run_exitfuncs()
    _flush()
    os._exit(code)


class Command(Answer):
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
        now_s = time.monotonic()
        if self._pressed_s is not None and now_s - self._pressed_s > SAME_S:
            self.end_at_once()
        if self._pressed_s is None:
            self._pressed_s = now_s

    def __call__(self, number: int, frame: FrameType | None) -> None:
        before = self._pressed_s
        self.count()
        if not self._raises or _is_loading("torch"):
            self.end_at_once()
        if before is None:
            raise KeyboardInterrupt

    def end_at_once(self) -> NoReturn:
        self.say()
        os._exit(INTERRUPTED)

    def _swallowed(self, found: Any) -> None:
        """An exception that Python cannot raise, from a destructor say: a Ctrl-C comes again a little later."""
        if not issubclass(found.exc_type, KeyboardInterrupt):
            sys.__unraisablehook__(found)
            return
        self._pressed_s = None
        main = threading.main_thread().ident or 0
        threading.Timer(AGAIN_S, signal.pthread_kill, (main, signal.SIGINT)).start()


def _is_loading(name: str) -> bool:
    """Whether the module *name* is being imported."""
    return bool(getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()


def _leave_the_stuck() -> None:
    """At the end of a process that is not the command's: its exit code is not known here, other than a failure's."""
    if any(thread.is_alive() for thread in _stuck):
        print("work that does not end was left behind: leaving without waiting for it", file=sys.stderr)
        leave(INTERRUPTED if getattr(sys, "last_type", None) is KeyboardInterrupt else 1)
