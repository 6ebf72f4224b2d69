"""Notice coroutines of user code that are never awaited, with the line that made them.

Python can track the origin of every coroutine, but that makes a simulated message 5 to 11 % more
expensive. So origins are tracked only until the first step, in which most mistakes show, and again
after a coroutine was freed on a different line from the one that made it.
"""

from __future__ import annotations

import inspect
import linecache
import re
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import CoroutineType
from typing import TextIO

from simcluster.process.own_frames import is_own, original, user_frames

_SAID = re.compile(r"coroutine '(?P<name>[^']+)' was never awaited")
_MADE = re.compile(r'  File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)')


@contextmanager
def unawaited_noticed(notice: Callable[[str, str], object]) -> Iterator[None]:
    """Within the context, call *notice* for each coroutine of user code that is never awaited.

    *notice* takes (name, "file:line (function)"). Python warns when such a coroutine is freed; for
    a plain `node.send(...)` this happens at once, in the same line. After `first_step_made`, the
    warning of the first coroutine that is freed elsewhere is printed, and from then on Python
    tracks origins again. Other warnings are shown as usual. These contexts must not overlap, since
    the warnings of a process have one handler.
    """
    depth = sys.get_coroutine_origin_tracking_depth()
    sys.set_coroutine_origin_tracking_depth(max(depth, 1))
    _before.depth = depth
    with warnings.catch_warnings():
        warnings.filterwarnings("always", _SAID.pattern, RuntimeWarning)
        shown = warnings.showwarning
        named = set[str]()

        def say(
            message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None,
            line: str | None = None,
        ) -> None:  # fmt: skip
            said, made = _SAID.match(str(message)), _MADE.findall(str(message))
            if said is not None and (at := _origin(made) if made else _freed(said["name"])):
                named.add(said["name"])
                notice(said["name"], at)
                return
            if said is not None:
                sys.set_coroutine_origin_tracking_depth(max(depth, 1))
                # A node that is still in its first step may free the same coroutine elsewhere, but
                # its line is known from a faster node.
                if said["name"] in named:
                    return
            shown(message, category, filename, lineno, file, line)

        warnings.showwarning = say
        try:
            yield
        finally:
            sys.set_coroutine_origin_tracking_depth(depth)
            _before.depth = None


def first_step_made() -> None:
    """Stop tracking the origins of coroutines in this thread, at the first call only."""
    if (depth := _before.depth) is not None:
        sys.set_coroutine_origin_tracking_depth(depth)
        _before.depth = None


def close_unawaited(error: BaseException) -> list[tuple[str, str]]:
    """Close the coroutines that were never awaited in the user's frames of *error*'s traceback.

    Python would warn of them when the error is freed. Return (name, location of the line that made
    it) for each; the location is "" if it is unknown.
    """
    found = []
    for frame, _ in traceback.walk_tb(error.__traceback__):
        held = frame.f_locals.values() if is_own(frame.f_code.co_filename) else ()
        for one in held:
            if isinstance(one, CoroutineType) and inspect.getcoroutinestate(one) == inspect.CORO_CREATED:
                found.append((one.__qualname__, _origin(one.cr_origin) if one.cr_origin else ""))
                one.close()
    return found


class _ThreadDepth(threading.local):
    """The depth of origin tracking to restore at this thread's first step; None after it."""

    depth: int | None = None


_before = _ThreadDepth()


def _origin(made: Sequence[tuple[str, str | int, str]]) -> str:
    """Return the innermost location of a tracked origin; "" if it is not in user code."""
    return original("{}:{} ({})".format(*made[-1])) if is_own(made[-1][0]) else ""


def _freed(name: str) -> str:
    """Return the location in user code at which the coroutine *name* is being freed; "" unless that
    line calls *name*.
    """
    frame = next(user_frames(sys._getframe(1)), None)
    if frame is None:
        return ""
    code = frame.f_code
    called = re.compile(rf"\b{re.escape(name.rpartition('.')[2])}\s*\(")
    # The instruction that frees the coroutine may belong to no line: then take the line before it.
    reached = [line for start, _, line in code.co_lines() if start <= frame.f_lasti and line]
    number = frame.f_lineno or max(reached[-1:], default=0)
    is_called = called.search(linecache.getline(code.co_filename, number, frame.f_globals))
    return original(f"{code.co_filename}:{number} ({code.co_name})") if is_called else ""
