"""End the process: normally if possible, and without Python's finalization if that would abort.

Python's finalization destroys objects while daemon threads and suspended coroutines may still hold
tensors. In this case torch aborts the process.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from contextlib import suppress
from typing import NoReturn

INTERRUPTED = 130
"""The exit code after Ctrl-C: 128 plus the number of the signal, as in shells."""

_stuck: list[threading.Thread] = []
_waiting: list[threading.Thread] = []


def left_behind(thread: threading.Thread, *, waits: bool = False) -> None:
    """Note that *thread* runs work that may never end.

    If it still runs at exit, the process skips Python's finalization. A thread that only *waits*,
    in a library that has abandoned it, rarely disturbs the finalization: because of such a thread,
    only a command skips the finalization, since a command knows its exit code.
    """
    if waits:
        _waiting.append(thread)
        return
    if not _stuck:
        atexit.register(_leave_the_stuck)
    _stuck.append(thread)


def any_stuck() -> bool:
    """Return whether any thread that was passed to `left_behind` still runs."""
    return any(thread.is_alive() for thread in (*_stuck, *_waiting))


def leave(code: int) -> NoReturn:
    """Run the atexit functions, flush the output, and end the process with *code* at once."""
    atexit.unregister(_leave_the_stuck)
    with suppress(Exception):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)


def _leave_the_stuck() -> None:
    """End this process, which is not a command, at once if a thread is stuck.

    The exit code that the process wants is not known here. Use 130 after a Ctrl-C, otherwise 1, so
    that it counts as a failure.
    """
    if any(thread.is_alive() for thread in _stuck):
        print("work that does not end was left behind: leaving without waiting for it", file=sys.stderr)
        leave(INTERRUPTED if getattr(sys, "last_type", None) is KeyboardInterrupt else 1)
