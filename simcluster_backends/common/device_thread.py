"""A real node's device: one thread that runs one piece of work at a time, in order of submission.

The thread is a daemon: unlike an executor's, it cannot keep a process with endless work from exiting.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from simcluster.process.exits import left_behind
from simcluster.process.intra_op import use_one_thread

T = TypeVar("T")


class Piece:
    """Submitted work and its future."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self.future: Future[Any] = Future()

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self._work())
        except BaseException as error:
            self.future.set_exception(error)


class DeviceThread:
    """A thread for device work. `submit` work; `close` at the end."""

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[Piece | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], T]) -> Future[T]:
        piece = Piece(work)
        self._queue.put(piece)
        return piece.future

    def settle(self, patience_s: float) -> bool:
        """Wait for all submitted work; return False if it has not ended after *patience_s*."""
        try:
            self.submit(lambda: None).result(patience_s)
        except TimeoutError:
            return False
        return True

    def close(self, patience_s: float) -> bool:
        """Drop queued work and wait for running work; after *patience_s* abandon it and return False."""
        with suppress(queue.Empty):
            while True:
                piece = self._queue.get_nowait()
                if piece is not None:
                    piece.future.cancel()
        self._queue.put(None)
        self._thread.join(patience_s)
        if self._thread.is_alive():
            left_behind(self._thread)
        return not self._thread.is_alive()

    def _run(self) -> None:
        use_one_thread()
        while (piece := self._queue.get()) is not None:
            piece.run()
            del piece  # free what it references
