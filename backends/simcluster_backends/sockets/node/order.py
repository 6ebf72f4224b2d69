"""The event loop of a node, and the order of its events: loops, sends and a checkpoint channel record it for a replay.

The loop is uvloop's if it is installed, which takes about half the time per message, else asyncio's. Loops that can be
replayed count the callbacks of the node's own code, number its tasks and timers, and record its clock readings.
Everything outside the program (connections, heartbeats) runs in a context without notes, unchanged.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from simcluster.checkpoints.keeper import CheckpointChannel
from simcluster.checkpoints.shard import Shard
from simcluster.errors import Problem, UsageError
from simcluster.process.installed import install_extra
from simcluster.runs.event_notes import NOTES, Notes
from simcluster.runs.event_order import EventKind
from simcluster_backends.common.precise_loop import asyncios_own, precise

T = TypeVar("T")
Callback: TypeAlias = Callable[..., object]


class NumberedTask(asyncio.Task[T]):
    """A task hashed by number: sets of tasks, as in TaskGroup and `asyncio.wait`, iterate in hash order."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], number: int, **options: Any) -> None:
        self.number = number
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self.number


def counting(base: type[Any]) -> type[Any]:
    """Return a counting *base* loop, which is a `MicrosecondLoop`."""
    soon, clock, new_task = base.call_soon, base.time, base.create_task
    at, in_a_while = base.call_at, base.call_later

    class CountingLoop(base):  # type: ignore[misc]
        """A loop that a run can be replayed from."""

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
    """Return a factory of event loops. None uses uvloop if installed; True requires it or raises UsageError.

    A run can be replayed from a loop that *counts*.
    """
    present = importlib.util.find_spec("uvloop") is not None
    if uvloop and not present:
        raise UsageError(Problem("uvloop", "true", f"uvloop to be installed: {install_extra('uvloop')}"))
    if not present or uvloop is False:
        base = asyncios_own()
    else:
        import uvloop as module

        base = precise(module.Loop, waits=True)
    return counting(base) if counts else base


@dataclass(slots=True, eq=False)
class RecordedSend:
    """The wait of send *number* on *future*; records how it ended.

    *putting* returns that of the frame that the program is putting on its stream, if any: others then end *later*.
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
        notes, future, putting = self.notes, self.future, self.putting()
        if putting is not None and putting is not self:
            # Inside another frame's callback, where no event may be recorded.
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
    """A checkpoint *channel*; its answers are recorded as events, like everything the program waits for.

    Create it outside the program's context, since its waits are not the program's.
    """

    def __init__(self, channel: CheckpointChannel, notes: Notes) -> None:
        self._channel, self._notes = channel, notes
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
