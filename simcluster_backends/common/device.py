"""A real node's device as its event loop sees it: pieces of work and their outcomes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from simcluster.fault_plans.kinds import Factors, stretched
from simcluster.replays.order import Kind
from simcluster_backends.common.arguments import name_of
from simcluster_backends.common.device_thread import DeviceThread
from simcluster_backends.common.node import Outcome

if TYPE_CHECKING:
    from concurrent.futures import Future

    from simcluster.replays.notes import Notes
    from simcluster.runs.recorder import Recorder

T = TypeVar("T")


class Piece:
    """*work*; its outcome goes into *done*. *waiting* is its entry in the queue of the device's thread."""

    waiting: Future[None]

    def __init__(self, number: int, work: Callable[[], Any], done: asyncio.Future[Outcome]) -> None:
        self.number, self.work, self.done = number, work, done
        self.outcome: Outcome = (None, None)
        self.start_s = self.end_s = 0.0


class Device:
    """The device of node *name*. *computing* counts unfinished pieces, *ended* finished ones.

    *slow* has the slowdowns of the fault plan. For a later replay, *notes* records the events that reach the program.
    """

    def __init__(self, name: str, recorder: Recorder, *, slow: Factors = (), notes: Notes | None = None) -> None:
        self.computing = self.ended = 0
        self._pieces = 0
        self._recorder, self._slow, self._notes = recorder, slow, notes
        self._loop = asyncio.get_running_loop()
        self._thread = DeviceThread(f"device of {name}")
        recorder.settle = self._thread.settle

    def submit(self, work: Callable[[], Any]) -> Piece:
        self._pieces += 1
        piece = Piece(self._pieces, work, self._loop.create_future())
        self.computing += 1
        piece.waiting = self._thread.submit(lambda: self._run(piece))
        return piece

    def call_off(self, piece: Piece) -> None:
        """Drop *piece* if it has not begun, and count it down, since `_end` will not."""
        if piece.waiting.cancel():
            self.computing -= 1
            if self._notes is not None:
                self._notes.answers.never_ran.append(piece.number)

    async def aside(self, work: Callable[[], T]) -> T:
        """Run *work* between the algorithm's pieces, without counting or recording it."""
        return await asyncio.wrap_future(self._thread.submit(work))

    def close(self, patience_s: float) -> bool:
        """Drop queued work and wait for running work; return False if it has not ended after *patience_s*."""
        return self._thread.close(patience_s)

    # inside

    def _run(self, piece: Piece) -> None:
        piece.start_s = self._recorder.now()
        try:
            piece.outcome = piece.work(), None
        except BaseException as error:
            piece.outcome = None, error
        if self._slow:
            took_s = self._recorder.now() - piece.start_s
            time.sleep(stretched(self._slow, piece.start_s, took_s) - took_s)
        piece.end_s = self._recorder.now()
        self._loop.call_soon_threadsafe(self._end, piece)

    def _end(self, piece: Piece) -> None:
        self.computing -= 1
        self.ended += 1
        self._recorder.span("compute", piece.start_s, piece.end_s, -1, "", 0)
        if self._notes is not None:
            self._notes.answers.names.append(name_of(piece.work))
            self._notes.answers.took_s.append(piece.end_s - piece.start_s)
        if not piece.done.done():
            if self._notes is not None:
                self._notes.note(Kind.COMPUTED, piece.number)
            piece.done.set_result(piece.outcome)
