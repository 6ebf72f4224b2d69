"""The event loop of a node, and records of the order of its events for a replay.

By default, the loop is uvloop's if uvloop is installed, which takes about half the time per
message, and otherwise asyncio's. A counting loop counts the callbacks of the program, numbers its
tasks and timers, and records its clock readings. Each send and each answer of the checkpoint
channel records when it ends. Code outside the program, such as connections and heartbeats, runs in
a context without notes, so the loop records nothing for it.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Any, TypeVar

from simcluster.checkpoints.keeper import CheckpointChannel
from simcluster.checkpoints.shard import Shard
from simcluster.errors import UsageError
from simcluster.process.installed import install_extra
from simcluster.runs.event_notes import NOTES, Notes
from simcluster.runs.event_order import EventKind
from simcluster_backends.common.precise_loop import asyncios_own, precise

T = TypeVar("T")
Callback = Callable[..., object]


class NumberedTask(asyncio.Task[T]):
    """A task whose hash is its number, so that a replay repeats the order of sets of tasks.

    TaskGroup and `asyncio.wait` iterate over such sets, in hash order.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T], number: int, **options: Any) -> None:
        self.number = number
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self.number


def counting(base: type[Any]) -> type[Any]:
    """Return a subclass of *base*, a `MicrosecondLoop`, that counts the program's events."""
    soon = base.call_soon
    clock = base.time
    new_task = base.create_task
    at, in_a_while = base.call_at, base.call_later

    class CountingLoop(base):  # type: ignore[misc]
        """A loop that records the order of the program's events in the notes of the context."""

        def call_soon(self, callback: Callback, *args: Any, context: Context | None = None) -> Any:
            notes = NOTES.get() if context is None else context.get(NOTES)
            if notes is None:
                return soon(self, callback, *args, context=context)
            return soon(self, notes.run, callback, args, context=context)

        def call_at(self, when: float, callback: Callback, *args: Any, context: Context | None = None) -> Any:
            notes = NOTES.get()
            if notes is None:
                return at(self, when, callback, *args, context=context)
            return self.call_later(when - clock(self), callback, *args, context=context)

        def call_later(self, delay: float, callback: Callback, *args: Any, context: Context | None = None) -> Any:
            notes = NOTES.get()
            if notes is None:
                return in_a_while(self, delay, callback, *args, context=context)
            return in_a_while(self, delay, notes.fire, next(notes.timers), callback, args, context=context)

        def time(self) -> float:
            notes = NOTES.get()
            now_s: float = clock(self)
            return now_s if notes is None else notes.read(now_s)

        def create_task(self, coro: Coroutine[Any, Any, T], **options: Any) -> asyncio.Task[T]:
            notes = NOTES.get()
            if notes is None:
                task: asyncio.Task[T] = new_task(self, coro, **options)
                return task
            return NumberedTask(coro, next(notes.tasks), loop=self, **options)

    return CountingLoop


def loop_factory(uvloop: bool | None = None, *, counts: bool = False) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return a factory of event loops.

    If *uvloop* is None, the loops are uvloop's if it is installed; if true, raise UsageError if it
    is not. A run can be replayed only if its loops are made with *counts*.
    """
    present = importlib.util.find_spec("uvloop") is not None
    if uvloop and not present:
        raise UsageError("uvloop", "true", f"uvloop to be installed: {install_extra('uvloop')}")
    if not present or uvloop is False:
        base = asyncios_own()
    else:
        import uvloop as module

        base = precise(module.Loop, waits=True)
    return counting(base) if counts else base


@dataclass(slots=True, eq=False)
class RecordedSend:
    """The wait for send *number*, which ends with *future*; its end is recorded in *notes*.

    *putting* returns the RecordedSend of the frame that the program is putting on a stream at the
    moment, or None. While there is one, *later* delays the end of all other waits to the loop's
    next turn.
    """

    number: int
    future: asyncio.Future[None]
    notes: Notes
    later: Callable[[Callable[[Exception | None], None], Exception | None], None]
    putting: Callable[[], object]

    def done(self) -> bool:
        return self.future.done()

    def set_result(self, _: None) -> None:
        self._end(None)

    def set_exception(self, error: Exception) -> None:
        self._end(error)

    def _end(self, error: Exception | None) -> None:
        notes = self.notes
        future = self.future
        putting = self.putting()
        if putting is not None and putting is not self:
            # The program is running, inside `put` of another frame: no event may be recorded now.
            self.later(self._end, error)
            return
        if future.done():
            return
        if putting is self:
            if error is not None:
                notes.answers.refused[self.number] = str(error)
        elif error is None:
            notes.note(EventKind.LEFT, self.number)
        else:
            notes.gone(EventKind.FAILED, self.number, str(error))
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


class NotedChannel:
    """A checkpoint channel that records the answers of *channel*, for which the program waits.

    Create it outside the program's context, because its own waits do not belong to the program.
    """

    def __init__(self, channel: CheckpointChannel, notes: Notes) -> None:
        self._channel = channel
        self._notes = notes
        self._loop = asyncio.get_running_loop()
        self._outside = copy_context()

    async def hand_in(self, make: Callable[[], Shard]) -> None:
        await self._noted(self._channel.hand_in(make))

    async def aside(self, work: Callable[[], T]) -> T:
        return await self._noted(self._channel.aside(work))

    async def _noted(self, request: Coroutine[Any, Any, T]) -> T:
        number = next(self._notes.asides)
        answer: asyncio.Future[T] = self._loop.create_future()
        task = self._outside.run(self._loop.create_task, request)

        def answered(_: object) -> None:
            if answer.done() or task.cancelled():
                return
            self._notes.note(EventKind.ASIDE, number)
            if (error := task.exception()) is not None:
                answer.set_exception(error)
            else:
                answer.set_result(task.result())

        task.add_done_callback(answered, context=self._outside)
        try:
            return await answer
        except asyncio.CancelledError:
            task.cancel()
            raise
