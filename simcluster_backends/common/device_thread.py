"""A real node's device: one thread that does one piece of work at a time, in the order asked for.

The thread is a daemon: work without an end does not keep a process from ending, which an executor's would.
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
    """Some work that waits, or runs, and its future."""

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
    """`submit` work; `close` in the end."""

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[Piece | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], T]) -> Future[T]:
        piece = Piece(work)
        self._queue.put(piece)
        return piece.future

    def settle(self, patience_s: float) -> bool:
        """Wait for all that was asked for; return False if that has not ended after *patience_s*."""
        try:
            self.submit(lambda: None).result(patience_s)
        except TimeoutError:
            return False
        return True

    def close(self, patience_s: float) -> bool:
        """Drop what waits, and wait for what runs; return False if that has not ended after *patience_s*.

        It is then left behind.
        """
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
            del piece  # with what it holds
