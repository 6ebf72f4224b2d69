"""Limits on the code of worlds, and the error of a world that fails.

Limits count events and lines of code, not seconds, so that a run that fails fails everywhere alike.
"""

from __future__ import annotations

import dis
import sys
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import cache
from types import CodeType, FrameType, GeneratorType
from typing import TYPE_CHECKING, Any

from simcluster.errors import UsageError, WorldFailed
from simcluster.process.own_frames import is_own, original

if TYPE_CHECKING:
    from simpy.events import Event

LINES_LIMIT = 5_000_000
"""Limit on the lines of its own code that a world runs from one yield to the next: some seconds."""


EVENTS_LIMIT = 100_000
"""Limit on the events of worlds at one instant, and on those of a simulation without which no node can go on."""


class WorldStalled(BaseException):
    """A world let nothing else happen. No handler of a world for Exception catches it."""


class EventBudget:
    """The budget of the events of worlds at one instant."""

    def __init__(self) -> None:
        self._now_s = -1.0
        self._events = 0

    def count(self, now_s: float) -> None:
        """Count an event at *now_s*. Raise WorldStalled beyond the limit."""
        self._events = self._events + 1 if now_s == self._now_s else 1
        self._now_s = now_s
        if self._events > EVENTS_LIMIT:
            raise WorldStalled(f"{EVENTS_LIMIT:,} events at {now_s:g} s, and no time passes")


@contextmanager
def world_code(resumed: Callable[[], Generator[Event, Any, Any] | None]) -> Iterator[None]:
    """Run code of worlds within the block. Raise WorldFailed for its errors, and beyond a limit.

    *resumed* returns the process of SimPy that ran last, if that is known.
    """
    try:
        with _lines_counted():
            yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _failed(error, resumed()) from error


def _failed(error: BaseException, resumed: Generator[Event, Any, Any] | None) -> WorldFailed:
    """Return the error of a run whose world raised *error*; its process *resumed* ran last."""
    frames = _frames_of(error) or list(traceback.StackSummary.extract(_waiting(resumed), lookup_lines=True))
    place = f"{frames[-1].filename}:{frames[-1].lineno} ({frames[-1].name})" if frames else "an unknown place"
    said = f"{'' if isinstance(error, UsageError) else f'{type(error).__name__}: '}{error}"
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames), said]
    return WorldFailed(original(place), original("".join(lines)))


def _frames_of(error: BaseException | None) -> list[traceback.FrameSummary]:
    """Return the frames in user code, outermost first: of each process that *error* has passed through."""
    found: list[traceback.FrameSummary] = []
    while error is not None:
        found += [frame for frame in traceback.extract_tb(error.__traceback__) if _is_own(frame.filename)]
        # SimPy hands a copy of the error to the process that waits for the failed one; and Python
        # makes a RuntimeError of a generator's StopIteration.
        cause = error.__cause__
        is_copy = type(cause) is type(error) and cause.args == error.args
        error = cause if is_copy or isinstance(cause, StopIteration) else None
    return found


def _waiting(process: Generator[Event, Any, Any] | None) -> Iterator[tuple[FrameType, int]]:
    frame = process.gi_frame if isinstance(process, GeneratorType) else None
    if frame is not None:
        yield frame, frame.f_lineno


_is_own = cache(is_own)


@cache
def _jumps_to_itself(code: CodeType) -> bool:
    """Return whether *code* has a jump to itself, as `while True: pass` on one line; it is no event of a line."""
    return any(one.opname.startswith("JUMP") and one.argval == one.offset for one in dis.get_instructions(code))


@contextmanager
def _lines_counted() -> Iterator[None]:
    """Raise WorldStalled within the block when it has run LINES_LIMIT lines of user code.

    Do nothing under a debugger, which traces lines itself.
    """
    left = LINES_LIMIT

    def enter(frame: FrameType, _: str, __: object) -> Any:
        if not _is_own(frame.f_code.co_filename):
            return None
        frame.f_trace_opcodes = _jumps_to_itself(frame.f_code)
        return count

    def count(frame: FrameType, what: str, _: object) -> Any:
        nonlocal left
        left -= what in ("line", "opcode")
        if left < 0:
            raise WorldStalled(f"{LINES_LIMIT:,} lines without a yield")
        return count

    if sys.gettrace() is not None:
        yield
        return
    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(None)
