"""Pieces of work, in threads if worthwhile, so that work that overlaps in virtual time also overlaps on real cores.

When a piece finishes has no effect: it is joined before anything else of its owner runs that may need its result or
change its input. Owners share no state, so where and when it ran in between changes no bit.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from simcluster.compute.at_work import at_work
from simcluster.process.exits import left_behind
from simcluster.process.intra_op import use_one_thread

T = TypeVar("T")

LEAST_FLOPS = 1e8
"""Less work than this is not worth a thread: contention for the interpreter lock would cost more than it saves."""


class WorkOutcome(Generic[T]):
    """The outcome of a call of *work*, in a copy of the present *context*, which `call` makes."""

    __slots__ = ("_error", "_result", "_work", "context")

    def __init__(self, work: Callable[[], T]) -> None:
        self._work, self.context = work, contextvars.copy_context()
        self._result: T | None = None
        self._error: BaseException | None = None

    def call(self) -> None:
        try:
            self._result = self.context.run(at_work, self._work)
        except KeyboardInterrupt:  # not raised by the work
            raise
        except BaseException as error:
            self._error = error

    def result(self) -> T:
        """Return or raise the outcome of the finished work."""
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]


class ThreadWork(WorkOutcome[T]):
    """A call of *work* that runs once, in whatever thread."""

    __slots__ = ("_over",)

    def __init__(self, work: Callable[[], T]) -> None:
        super().__init__(work)
        self._over = threading.Lock()
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
    """*threads* threads, none if that is 1, and the pieces in progress, one per *owner*."""

    def __init__(self, threads: int) -> None:
        self._count = threads if threads > 1 else 0
        self._hurries = False
        self._threads: list[threading.Thread] = []
        self._waiting: SimpleQueue[ThreadWork[Any] | None] = SimpleQueue()
        self.under_way: dict[object, ThreadWork[Any]] = {}

    def begin(self, owner: object, work: Callable[[], T], *, hand_over: bool) -> WorkOutcome[T]:
        """Start *work*; it has finished on return unless there are threads to *hand* it *over* to."""
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
        """Wait for the piece of *owner* in progress, if any."""
        piece = self.under_way.pop(owner, None)
        if piece is not None:
            piece.wait()

    def close(self, within_s: float | None = None) -> None:
        """End the threads when all work is done, or within *within_s*, dropping queued work.

        A thread that has not ended by then is abandoned. Later work runs in the calling thread.
        """
        self.under_way.clear()
        self._count, self._hurries = 0, within_s is not None
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
