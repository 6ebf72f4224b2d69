"""Describe a node that hangs: its waits, their locations in the code, and its unread messages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from types import CoroutineType, FrameType
from typing import Any

from simcluster.process.own_frames import is_library, is_own, original, with_line, written

WAITS_AT = "waits_at"
"""The name of a local variable in coroutines that wait on behalf of another program.

Its value is the location in the code at which that program waits.
"""

MOST_PLACES = 4
"""The maximum number of locations that a line lists."""


def wait_in_words(
    label: str,
    waits: Sequence[str],
    places: Sequence[str],
    unread: Sequence[str],
    unknown: str = "something outside the transport",
) -> str:
    """Return the line that node *label* waits for *waits*, or for *unknown* if there are none."""
    text = f"{label} waits for {', '.join(waits) or unknown}"
    if places:
        text += f" at {' and '.join(map(original, places))}"
    return f"{text}; unread: {', '.join(unread)}" if unread else text


def waiting_at(tasks: Iterable[asyncio.Task[Any]]) -> list[str]:
    """Return the locations at which *tasks* wait, each as "file:line (function): `source`".

    They are in user code, or in the library if no task waits in user code. At most MOST_PLACES are
    returned. Safe in any thread.
    """
    own, ours = set(), set()
    for task in tasks:
        frames = list(_awaiting(task))
        own |= {frame.f_locals[WAITS_AT] for frame in frames if WAITS_AT in frame.f_locals}
        if (frame := _innermost(frames, is_own)) is not None:
            own.add(with_line(frame))
        elif (frame := _innermost(frames, is_library)) is not None:
            ours.add(written(frame))
    return sorted(own or ours)[:MOST_PLACES]


def _awaiting(task: asyncio.Task[Any]) -> Iterator[FrameType]:
    """Yield the frames of *task*'s coroutine, of the coroutine that it awaits, and so on."""
    awaited: Any = task.get_coro()
    while isinstance(awaited, CoroutineType):
        if (frame := awaited.cr_frame) is not None:
            yield frame
        awaited = awaited.cr_await


def _innermost(frames: Sequence[FrameType], wanted: Any) -> FrameType | None:
    return next((frame for frame in reversed(frames) if wanted(frame.f_code.co_filename)), None)
