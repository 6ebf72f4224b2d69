"""A node's device: one thread that does one piece of work at a time, in the order asked for.

This file must not know what the work is. The thread is a daemon: work without an end does not keep a process from
ending, which an executor's would.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from simcluster.intra_op import use_one_thread


class Piece:
    """Some work that waits, or runs."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._taken = threading.Lock()

    def cancel(self) -> bool:
        """True if it never ran, and now never will."""
        return self._taken.acquire(blocking=False)

    def run(self) -> None:
        if self._taken.acquire(blocking=False):
            self._work()


class Device:
    """`submit` work, whose exceptions are its own affair; `close` in the end."""

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[Piece | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], object]) -> Piece:
        piece = Piece(work)
        self._queue.put(piece)
        return piece

    def close(self, patience_s: float) -> bool:
        """Drops what waits, and waits for what runs; False if that has not ended after *patience_s*."""
        self._closed = True
        self._queue.put(None)
        self._thread.join(patience_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        use_one_thread()
        while (piece := self._queue.get()) is not None:
            if not self._closed:
                piece.run()
            del piece  # with what it holds
