"""Pieces of work, in threads if they are large, so that what overlaps in virtual time overlaps on this machine's cores.

This file knows threads, functions and owners. It must not know clocks, nodes or torch. When a piece is over decides
nothing: before anything else of its owner is run, which may need its result or change what it reads, it is waited for.
Owners share nothing, so it changes no bit where and when in between it ran.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")

LEAST_FLOPS = 1e8
"""Work of less is done at once: to hand it over would take longer than it."""


class Piece(Generic[T]):
    """A call of *work* that runs once, and what came of it."""

    __slots__ = ("_context", "_error", "_over", "_result", "_work")

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._context = contextvars.copy_context()
        self._over = threading.Lock()
        self._over.acquire()
        self._result: T | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._result = self._context.run(self._work)
        except KeyboardInterrupt:  # is not the work's
            raise
        except BaseException as error:
            self._error = error
        finally:
            self._over.release()

    def wait(self) -> None:
        """Returns when the work is over."""
        with self._over:
            return

    def result(self) -> T:
        """What the work, which is over, returned; raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]


class Workers:
    """*threads* threads, or none if that is 1, and the pieces under way by *owner*, one each."""

    def __init__(self, threads: int) -> None:
        self._count = threads if threads > 1 else 0
        self._threads: list[threading.Thread] = []
        self._waiting: SimpleQueue[Piece[Any] | None] = SimpleQueue()
        self.under_way: dict[object, Piece[Any]] = {}

    def begin(self, owner: object, work: Callable[[], T], flops: float) -> Piece[T]:
        """The piece that *work* of about so many FLOPs is; it may be over when this returns."""
        piece = Piece(work)
        if self._count and flops >= LEAST_FLOPS:
            self.under_way[owner] = piece
            self._hand_over(piece)
        else:
            piece.run()
        return piece

    def join(self, owner: object) -> None:
        """Waits for the piece of *owner*, if one is under way."""
        piece = self.under_way.pop(owner, None)
        if piece is not None:
            piece.wait()

    def close(self) -> None:
        """Nothing is waited for any more; threads end once they have nothing left to do."""
        self.under_way.clear()
        for _ in self._threads:
            self._waiting.put(None)
        self._threads.clear()

    def _hand_over(self, piece: Piece[Any]) -> None:
        if len(self._threads) < self._count:
            # A daemon: work that never ends must not keep Ctrl-C from ending the process.
            thread = threading.Thread(target=self._run, name=f"work-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._waiting.put(piece)

    def _run(self) -> None:
        while (piece := self._waiting.get()) is not None:
            piece.run()
