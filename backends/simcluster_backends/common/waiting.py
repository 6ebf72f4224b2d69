"""What a node waits for, where, and what lies unread meanwhile: a line of the report of a run that does not end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from types import CoroutineType, FrameType
from typing import Any

from simcluster.process.places import is_library, is_own, original, with_line, written

WAITS_AT = "waits_at"
"""A coroutine that waits for a program elsewhere has a variable of this name, with the place in that program."""

MOST_PLACES = 4
"""Limit on the places that a line lists."""


def wait_in_words(
    label: str,
    waits: Sequence[str],
    places: Sequence[str],
    unread: Sequence[str],
    unknown: str = "something outside the transport",
) -> str:
    """Return the line of the node *label*; *unknown* is what it waits for if there are no *waits*."""
    text = f"{label} waits for {', '.join(waits) or unknown}"
    if places:
        text += f" at {' and '.join(map(original, places))}"
    return f"{text}; unread: {', '.join(unread)}" if unread else text


def waiting_at(tasks: Iterable[asyncio.Task[Any]]) -> list[str]:
    """Return where *tasks* wait, "file:line (function): `text`": in user code, or in the library if none does there.

    It may be called in any thread.
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
    """Yield the frames of the coroutines that wait for one another, from *task* inwards."""
    awaited: Any = task.get_coro()
    while isinstance(awaited, CoroutineType):
        if (frame := awaited.cr_frame) is not None:
            yield frame
        awaited = awaited.cr_await


def _innermost(frames: Sequence[FrameType], wanted: Any) -> FrameType | None:
    return next((frame for frame in reversed(frames) if wanted(frame.f_code.co_filename)), None)
