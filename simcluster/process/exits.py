"""How the process ends: in order if it can, and without Python's own ending where that would abort.

Python's ending destroys objects while daemon threads and half-run coroutines still hold tensors, and torch answers that
with an abort.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from contextlib import suppress
from typing import NoReturn

INTERRUPTED = 130
"""The exit code after Ctrl-C: 128 and the number of the signal, as shells have it."""

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
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)


def _leave_the_stuck() -> None:
    """At the end of a process that is not the command's: its exit code is not known here, other than a failure's."""
    if any(thread.is_alive() for thread in _stuck):
        print("work that does not end was left behind: leaving without waiting for it", file=sys.stderr)
        leave(INTERRUPTED if getattr(sys, "last_type", None) is KeyboardInterrupt else 1)
