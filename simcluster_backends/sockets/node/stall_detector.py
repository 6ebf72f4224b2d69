"""A stall detector: checks from another thread that a node's event loop turns, and finds where it is stuck if not."""

from __future__ import annotations

import asyncio
import sys
import sysconfig
import threading
import time
from types import FrameType

SHOWN_S = 1.0
"""A loop that has not turned for this long is reported as stuck."""

_NOT_OWN = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))


class Pulse:
    """A probe of *loop*, created in its thread; call `stalled` in another one, about every *interval_s*."""

    def __init__(self, loop: asyncio.AbstractEventLoop, interval_s: float) -> None:
        self._loop, self._thread = loop, threading.get_ident()
        self._asked_s = self._called_s = time.monotonic()
        self._answered = True
        self._patience_s = 2 * interval_s + 1.0

    def stalled(self) -> tuple[float, str]:
        """Return (seconds since the loop was asked for a turn without answering, where its thread is), or (0, "").

        `compute` does not count: it runs in another thread while the loop turns.
        """
        now_s = time.monotonic()
        if now_s - self._called_s > self._patience_s:
            self._asked_s = now_s  # this process slept, so the loop could not turn
        self._called_s = now_s
        if self._answered:
            self._answered, self._asked_s = False, now_s
            try:
                self._loop.call_soon_threadsafe(self._answer)
            except RuntimeError:
                self._answered = True  # the loop is closed
        stalled_s = now_s - self._asked_s
        if stalled_s < SHOWN_S:
            return 0.0, ""
        return stalled_s, place(sys._current_frames().get(self._thread))

    def _answer(self) -> None:
        self._answered = True


def place(frame: FrameType | None) -> str:
    """Return "file:line (function)" of the innermost frame of user code: no package, Python or simcluster."""
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    if not frames:
        return "an unknown place"
    here = next((frame for frame in frames if _is_own(frame.f_code.co_filename)), frames[0])
    return f"{here.f_code.co_filename}:{here.f_lineno} ({here.f_code.co_name})"


def _is_own(filename: str) -> bool:
    return not filename.startswith(("<", *_NOT_OWN)) and "/simcluster_backends/" not in filename.replace("\\", "/")
