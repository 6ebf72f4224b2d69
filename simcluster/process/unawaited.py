"""Coroutines that are thrown away without an await: each is noticed, with the line that made it.

Python can note the origin of every coroutine, but that makes a simulated message 5 to 11 % more expensive. So it does
until the first step, in which most mistakes show, and after a coroutine was thrown away in another line than that which
made it.
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

from simcluster.process.places import is_own, original, user_frames

_SAID = re.compile(r"coroutine '(?P<name>[^']+)' was never awaited")
_MADE = re.compile(r'  File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)')


@contextmanager
def unawaited_noticed(notice: Callable[[str, str], object]) -> Iterator[None]:
    """Call *notice* with (name, "file:line (function)") for each coroutine of user code that is never awaited.

    Python finds one when it is freed, which for `node.send(...)` is at once, in the same line, and would print a
    warning. After `first_step_made`, the first that is freed elsewhere is printed so; from then on Python tracks their
    origins again. Anything else that it warns of is shown as before. Not for contexts that overlap: the warnings of a
    process have one handler.
    """
    depth = sys.get_coroutine_origin_tracking_depth()
    sys.set_coroutine_origin_tracking_depth(max(depth, 1))
    _before.depth = depth
    with warnings.catch_warnings():
        warnings.filterwarnings("always", _SAID.pattern, RuntimeWarning)
        shown, named = warnings.showwarning, set[str]()

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
                if said["name"] in named:
                    return  # by a slower node, in its first step: the line is known from a faster one
            shown(message, category, filename, lineno, file, line)

        warnings.showwarning = say
        try:
            yield
        finally:
            sys.set_coroutine_origin_tracking_depth(depth)
            _before.depth = None


def first_step_made() -> None:
    """Stop tracking the origins of coroutines in this thread, unless one was freed unnoticed since the first step."""
    if (depth := _before.depth) is not None:
        sys.set_coroutine_origin_tracking_depth(depth)
        _before.depth = None


def close_unawaited(error: BaseException) -> list[tuple[str, str]]:
    """Close the coroutines that user code on the way of *error* holds and has not awaited.

    Python would warn of them when the error is freed. Return the name of each, and the place that made it, "" if that
    is unknown.
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
    """The depth of tracking outside the context of this thread, until its first step."""

    depth: int | None = None


_before = _ThreadDepth()


def _origin(made: Sequence[tuple[str, str | int, str]]) -> str:
    """Return the place that Python has noted; "" if it is not in user code."""
    return original("{}:{} ({})".format(*made[-1])) if is_own(made[-1][0]) else ""


def _freed(name: str) -> str:
    """Return the place in user code where a coroutine of *name* is being freed; "" unless that line calls it."""
    frame = next(user_frames(sys._getframe(1)), None)
    if frame is None:
        return ""
    code, called = frame.f_code, re.compile(rf"\b{re.escape(name.rpartition('.')[2])}\s*\(")
    # The instruction that frees may belong to no line: then it is that of the one before.
    reached = [line for start, _, line in code.co_lines() if start <= frame.f_lasti and line]
    number = frame.f_lineno or max(reached[-1:], default=0)
    is_called = called.search(linecache.getline(code.co_filename, number, frame.f_globals))
    return original(f"{code.co_filename}:{number} ({code.co_name})") if is_called else ""
