"""A stall detector: asks from another thread whether a node's event loop still turns, and if not, where it is stuck."""

from __future__ import annotations

import asyncio
import sys
import sysconfig
import threading
import time
from types import FrameType

SHOWN_S = 1.0
"""From here on a loop that has not turned is said to be stuck somewhere."""

_NOT_OWN = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))


class Pulse:
    """Made in the thread of *loop*; `stalled` is called in another one, every *interval_s* or so."""

    def __init__(self, loop: asyncio.AbstractEventLoop, interval_s: float) -> None:
        self._loop, self._thread = loop, threading.get_ident()
        self._asked_s = self._called_s = time.monotonic()
        self._answered = True
        self._patience_s = 2 * interval_s + 1.0

    def stalled(self) -> tuple[float, str]:
        """(seconds since the loop was last asked for a turn and gave none, where its thread is; both 0 and "" if fine).

        A piece of `compute` does not count: that runs in a thread of its own, and the loop turns meanwhile.
        """
        now_s = time.monotonic()
        if now_s - self._called_s > self._patience_s:
            self._asked_s = now_s  # this whole process slept, so the loop could not turn
        self._called_s = now_s
        if self._answered:
            self._answered, self._asked_s = False, now_s
            try:
                self._loop.call_soon_threadsafe(self._answer)
            except RuntimeError:
                self._answered = True  # closed: nothing is to turn any more
        stalled_s = now_s - self._asked_s
        if stalled_s < SHOWN_S:
            return 0.0, ""
        return stalled_s, place(sys._current_frames().get(self._thread))

    def _answer(self) -> None:
        self._answered = True


def place(frame: FrameType | None) -> str:
    """'file:line (function)' of the innermost frame that is somebody's own: no package's, not Python's, not ours."""
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
