"""Pieces of work, in threads if worthwhile, so that work that overlaps in virtual time also overlaps on real cores.

The moment at which a piece finishes has no effect: it is joined before anything else of its owner
runs that may need its result or change its input. Owners share no state, so results do not depend
on threads or timing.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from simcluster.compute.at_work import AT_WORK
from simcluster.process.exits import left_behind
from simcluster.process.intra_op import use_one_thread

T = TypeVar("T")

LEAST_FLOPS = 1e8
"""The minimum work worth a thread: less loses more to the interpreter lock than it gains."""


class WorkOutcome(Generic[T]):
    """The *result* or *error* of *work*, which `call` runs in a copy of the current context."""

    __slots__ = ("_work", "context", "error", "result")

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self.context = contextvars.copy_context()
        self.context.run(AT_WORK.set, True)
        self.result: T | None = None
        self.error: BaseException | None = None

    def call(self) -> None:
        try:
            self.result = self.context.run(self._work)
        except KeyboardInterrupt:  # from Ctrl-C, so not an outcome of the work
            raise
        except BaseException as error:
            self.error = error


class ThreadWork(WorkOutcome[T]):
    """A call of *work* that runs once, in any thread."""

    __slots__ = ("_over",)

    def __init__(self, work: Callable[[], T]) -> None:
        super().__init__(work)
        self._over = threading.Lock()  # locked until the work has finished
        self._over.acquire()

    def run(self) -> None:
        try:
            self.call()
        finally:
            self._over.release()

    def wait(self) -> None:
        """Return when the work has finished."""
        with self._over:
            return


class Workers:
    """A pool of *threads* threads (none if 1), and the pieces in progress, one per owner."""

    def __init__(self, threads: int) -> None:
        self._count = threads if threads > 1 else 0
        self._hurries = False
        self._threads: list[threading.Thread] = []
        self._waiting: SimpleQueue[ThreadWork[Any] | None] = SimpleQueue()
        self.under_way: dict[object, ThreadWork[Any]] = {}

    def begin(self, owner: object, work: Callable[[], T], *, hand_over: bool) -> WorkOutcome[T]:
        """Run *work*, in a thread if *hand_over* is set and there are threads, else at once."""
        if not (self._count and hand_over):
            outcome = WorkOutcome(work)
            outcome.call()
            return outcome
        piece = self.under_way[owner] = ThreadWork(work)
        if len(self._threads) < self._count:
            # A daemon: endless work must not keep Ctrl-C from ending the process.
            thread = threading.Thread(target=self._run, name=f"work-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._waiting.put(piece)
        return piece

    def join(self, owner: object) -> None:
        """Wait for the piece of *owner* that is in progress, if any."""
        piece = self.under_way.pop(owner, None)
        if piece is not None:
            piece.wait()

    def close(self, within_s: float | None = None) -> None:
        """End the threads when all work is done. With *within_s*, drop queued work instead.

        A thread that has not ended within *within_s* is abandoned. Later work runs in the calling
        thread.
        """
        self.under_way.clear()
        self._count = 0
        self._hurries = within_s is not None
        threads, self._threads = self._threads, []
        for _ in threads:
            self._waiting.put(None)
        # A thread still running at interpreter exit would crash the process.
        until_s = time.monotonic() + (within_s or 0.0)
        try:
            for thread in threads:
                thread.join(None if within_s is None else max(0.0, until_s - time.monotonic()))
        finally:
            for thread in threads:
                if thread.is_alive():
                    left_behind(thread)

    def _run(self) -> None:
        use_one_thread()
        while (piece := self._waiting.get()) is not None:
            if not self._hurries:
                piece.run()
            del piece  # free what it references
