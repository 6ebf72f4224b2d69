"""A real node's device: a thread that runs one piece of work at a time for an event loop."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from simcluster.compute.at_work import at_work
from simcluster.fault_plans.slowdown import Factors, stretched
from simcluster.process.exits import left_behind
from simcluster.process.intra_op import use_one_thread
from simcluster.runs.event_order import EventKind
from simcluster_backends.common.arguments import name_of
from simcluster_backends.common.node import Outcome
from simcluster_backends.common.shares import COMPUTING, TimeShares

if TYPE_CHECKING:
    from simcluster.runs.event_notes import Notes
    from simcluster.runs.recorder import Recorder

T = TypeVar("T")


class DeviceThread:
    """A thread that runs device work in order of submission. Call `close` at the end.

    The thread is a daemon. Unlike an executor's thread, it cannot keep the process alive when its
    work never ends.
    """

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        self._queue.put((future, work))
        return future

    def settle(self, patience_s: float) -> bool:
        """Wait at most *patience_s* for all submitted work; return whether all of it has ended."""
        try:
            self.submit(lambda: None).result(patience_s)
        except TimeoutError:
            return False
        return True

    def close(self, patience_s: float) -> bool:
        """Drop queued work and wait for running work; after *patience_s* abandon it and return False."""
        with suppress(queue.Empty):
            while True:
                if (waiting := self._queue.get_nowait()) is not None:
                    waiting[0].cancel()
        self._queue.put(None)
        self._thread.join(patience_s)
        if self._thread.is_alive():
            left_behind(self._thread)
        return not self._thread.is_alive()

    def _run(self) -> None:
        use_one_thread()
        while (waiting := self._queue.get()) is not None:
            future, work = waiting
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:
                    future.set_exception(error)
            del waiting, future, work  # these names would keep tensors alive until the next piece


@dataclass(eq=False)
class DeviceWork:
    """A piece of *work* on a device. The event loop completes *done* with the outcome.

    *waiting* is the future of the piece in the queue of the device's thread.
    """

    number: int
    work: Callable[[], Any]
    done: asyncio.Future[Outcome]
    outcome: Outcome = (None, None)
    start_s: float = 0.0
    end_s: float = 0.0
    waiting: Future[None] = field(init=False)


class NodeDevice:
    """The device of node *name*.

    *computing* counts its unfinished pieces of work, *ended* those that have finished.
    *shares* measures how the node spends its time. *slow* has the slowdowns of the fault plan.
    *notes* records the events that reach the program, for a later replay.
    """

    def __init__(self, name: str, recorder: Recorder, *, slow: Factors = (), notes: Notes | None = None) -> None:
        self.computing = self.ended = 0
        self.shares = TimeShares()
        self._pieces = 0
        self._name = name
        self._recorder = recorder
        self._slow = slow
        self._notes = notes
        self._loop = asyncio.get_running_loop()
        self._thread = DeviceThread(f"device of {name}")
        self._judge: DeviceThread | None = None
        self._judging: Future[None] | None = None
        recorder.settle, recorder.alongside = self._thread.settle, self._alongside

    def submit(self, work: Callable[[], Any]) -> DeviceWork:
        self._pieces += 1
        piece = DeviceWork(self._pieces, work, self._loop.create_future())
        self.computing += 1
        self.shares.begin(COMPUTING)
        piece.waiting = self._thread.submit(lambda: self._run(piece))
        return piece

    def call_off(self, piece: DeviceWork) -> None:
        """Drop *piece* if it has not begun. Otherwise it continues, and `_end` counts it."""
        if piece.waiting.cancel():
            self.computing -= 1
            self.shares.end(COMPUTING)
            if self._notes is not None:
                self._notes.answers.never_ran.append(piece.number)

    async def aside(self, work: Callable[[], T]) -> T:
        """Run *work* between the algorithm's pieces, without counting or recording it."""
        return await asyncio.wrap_future(self._thread.submit(work))

    @property
    def is_judging(self) -> bool:
        """Whether an evaluation alongside the algorithm is unfinished."""
        return self._judging is not None and not self._judging.done()

    def close(self, patience_s: float) -> bool:
        """Close both threads; return False if one had to be abandoned: see DeviceThread."""
        is_well = self._judge is None or self._judge.close(patience_s)
        return self._thread.close(patience_s) and is_well

    def _alongside(self, work: Callable[[], None]) -> Future[None]:
        """Run *work*, an evaluation, in a second thread, so that the algorithm need not wait."""
        if self._judge is None:
            self._judge = DeviceThread(f"evaluations of {self._name}")
        self._judging = self._judge.submit(work)
        return self._judging

    def _run(self, piece: DeviceWork) -> None:
        piece.start_s = self._recorder.now()
        try:
            piece.outcome = at_work(piece.work), None
        except BaseException as error:
            piece.outcome = None, error
        if self._slow:
            took_s = self._recorder.now() - piece.start_s
            time.sleep(stretched(self._slow, piece.start_s, took_s) - took_s)
        piece.end_s = self._recorder.now()
        self._loop.call_soon_threadsafe(self._end, piece)

    def _end(self, piece: DeviceWork) -> None:
        self.computing -= 1
        self.shares.end(COMPUTING)
        self.ended += 1
        self._recorder.span("compute", piece.start_s, piece.end_s, -1, "", 0)
        if self._notes is not None:
            self._notes.answers.names.append(name_of(piece.work))
            self._notes.answers.took_s.append(piece.end_s - piece.start_s)
        if not piece.done.done():
            if self._notes is not None:
                self._notes.note(EventKind.COMPUTED, piece.number)
            piece.done.set_result(piece.outcome)
