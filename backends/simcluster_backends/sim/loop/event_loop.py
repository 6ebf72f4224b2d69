"""An asyncio event loop with a `simpy.Environment` as its clock and queue.

Timers go into the clock's queue. A separate heap would livelock once a delay is below the clock's resolution
(now + delay == now), and two queues would need an order between them.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import logging
import math
import signal
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from simcluster.errors import UsageError
from simcluster.process.generators import RANKS, of_rank
from simcluster_backends.sim.loop.callbacks import FrozenCallbacks, Handle, Timer, owner_of_task
from simcluster_backends.sim.loop.clock import Alarm, Clock, Endless
from simcluster_backends.sim.loop.owned_tasks import OwnedTasks
from simcluster_backends.sim.loop.refusals import REFUSED, refusal
from simcluster_backends.sim.loop.workers import Workers

T = TypeVar("T")

IDLE_CALLBACKS_LIMIT = 5_000_000
"""The number of callbacks without progress after which a run counts as endless.

Polling takes about a minute to reach this number.
"""

IDLE_CALLBACKS_PER_NODE = 50_000
"""The same limit per node: the larger one applies.

A ring of p nodes needs 12 p callbacks of each node.
"""

INSTANT_CALLBACKS_LIMIT, INSTANT_CALLBACKS_PER_NODE = 200_000, 1_000
"""The limit within one instant, and how much each node adds to it: about half a second of polling.

A task that waits for nothing reaches it, such as `while True: await asyncio.sleep(0)`.
"""


class LoopDrained(Exception):
    """Nothing that is ready or in the clock's queue can complete the awaited task: a deadlock."""


class SimFuture(asyncio.Future[T]):
    """A future that hashes by its number, like SimTask.

    Few futures are hashed, so the first hash draws the number.
    """

    number: int | None = None

    def __hash__(self) -> int:
        if self.number is None:
            loop = self.get_loop()
            assert isinstance(loop, SimLoop)
            self.number = loop.next_number()
        return self.number


class SimTask(asyncio.Task[T]):
    """A task that hashes by its number: `asyncio.wait` and TaskGroup hold tasks in sets, which iterate by hash."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], number: int, **options: Any) -> None:
        self.number = number
        self.owner = owner_of_task.get()
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self.number


class SimLoop(asyncio.AbstractEventLoop):
    """An event loop in virtual time, which starts at 0.0 and is exact: a year's sleep is one event.

    Work may run in *threads* meanwhile; it finishes before the next callback of its owner runs.
    """

    def __init__(self, threads: int = 1, nodes: int = 1) -> None:
        self.clock = Clock(0.0)
        self.workers = Workers(threads)
        self._ready: deque[Handle | Timer] = deque()
        self.frozen = FrozenCallbacks(self._ready)
        self._numbers = itertools.count()
        self._owned: dict[object, OwnedTasks] = {}  # by owner
        self._running = self._closed = self._stopping = False
        self._most_at_once = min(INSTANT_CALLBACKS_LIMIT + nodes * INSTANT_CALLBACKS_PER_NODE, IDLE_CALLBACKS_LIMIT)
        self._most_idle = max(IDLE_CALLBACKS_LIMIT, nodes * IDLE_CALLBACKS_PER_NODE)
        self.turns = 0  # callbacks so far
        self.last_progress = 0  # the turn of the last progress: see IDLE_CALLBACKS_LIMIT
        self._drained_from = 0  # the first turn of this instant

    def time(self) -> float:
        return self.clock.now_s

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        handle = Handle(callback, args, contextvars.copy_context() if context is None else context)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        if math.isnan(when):
            raise ValueError("a time that is not a number")
        timer = Timer(when, callback, args, self, context)
        timer.alarm = self.clock.alarm_at(when, self._ready.append, timer)
        return timer

    def _timer_handle_cancelled(self, timer: asyncio.TimerHandle) -> None:
        """Cancel the alarm; called by `TimerHandle.cancel`."""
        assert isinstance(timer, Timer)
        timer.alarm.cancelled = True

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(loop=self)

    def next_number(self) -> int:
        """Return a number for hashes that do not depend on addresses."""
        return next(self._numbers)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: contextvars.Context | None = None
    ) -> SimTask[T]:
        number = next(self._numbers)
        task = SimTask(coro, number, loop=self, name=name or f"task-{number}", context=context)
        owned = self._owned.get(task.owner)
        if owned is None:
            owned = self._owned[task.owner] = OwnedTasks()
        owned.add(task)
        return task

    def rest(self, delay_s: float, context: contextvars.Context) -> tuple[asyncio.Future[None], Alarm]:
        """Return a future that is done after *delay_s* > 0, and its alarm for the caller to cancel.

        Awaiting the future is a sleep that takes fewer callbacks than `asyncio.sleep`. *context* is
        the context of the caller.
        """
        done: asyncio.Future[None] = asyncio.Future(loop=self)
        return done, self.clock.alarm_at(self.clock.now_s + delay_s, self.rested, (done, context))

    def rested(self, resting: tuple[asyncio.Future[None], contextvars.Context]) -> None:
        """End a rest: complete the future in *resting*, so that the task awaiting it continues."""
        done, context = resting
        if self.frozen.held:  # if the task's owner is suspended, a callback waits until it resumes
            self.call_soon(_finish, done, context=context)
        elif not done.done():
            done.set_result(None)

    def begin(self, owner: object, coro: Coroutine[Any, Any, T], name: str) -> SimTask[T]:
        """Return a new task of *owner*; its child tasks and callbacks are the owner's too."""
        token = owner_of_task.set(owner)
        try:
            return self.create_task(coro, name=name)
        finally:
            owner_of_task.reset(token)

    def unfinished(self) -> list[SimTask[Any]]:
        """Return the tasks that have not ended, by number."""
        tasks = [task for task in asyncio.all_tasks(self) if isinstance(task, SimTask)]
        return sorted(tasks, key=lambda task: task.number)

    def unfinished_of(self, owner: object) -> list[asyncio.Task[Any]]:
        """Return the tasks of *owner* that have not ended, by number."""
        owned = self._owned.get(owner)
        return owned.unfinished() if owned is not None else []

    def interrupt(self) -> None:
        """Raise KeyboardInterrupt between two callbacks: inside one, it would cost a task its next step.

        May be called from a signal handler.
        """
        self._ready.appendleft(Handle(signal.default_int_handler, (signal.SIGINT, None), contextvars.Context()))

    def run_until_complete(self, future: Any) -> Any:
        """Run until *future* is done, and return its result.

        Raise LoopDrained if nothing is left that could complete it, and Endless if a limit on
        callbacks without progress is reached.
        """
        task = asyncio.ensure_future(future, loop=self)
        with self._as_running_loop():
            try:
                self._run(task.done)
            except BaseException:
                task.cancel()
                raise
        return task.result()

    def run_forever(self) -> None:
        with self._as_running_loop():
            self._run(lambda: self._stopping)
        self._stopping = False

    def _run(self, finished: Callable[[], bool]) -> None:
        clock = self.clock
        while True:
            self.drain()
            if finished() or self._stopping:
                return
            if not clock.advance():
                raise LoopDrained

    def drain(self) -> None:
        """Run callbacks until none is ready. Raise Endless if a limit on callbacks is reached."""
        # Local names: this loop runs for every callback of a simulation.
        ready = self._ready
        frozen = self.frozen
        workers = self.workers
        self._drained_from = self.turns
        most_turns = self._most_turns()
        while ready:
            self.turns += 1
            if self.turns > most_turns and self.turns > (most_turns := self._most_turns()):
                at_once = self.turns - self.last_progress <= self._most_idle
                self.last_progress = self.turns  # so that the loop can run again to end the tasks
                raise Endless(at_once=at_once)
            callback = ready.popleft()
            if not frozen.held or not frozen.holds(callback):
                if workers.under_way:
                    workers.join(callback.owner())
                self.run_callback(callback)

    def _most_turns(self) -> int:
        """Return the last turn within the limits for this instant and since the last progress."""
        at_once = max(self._drained_from, self.last_progress) + self._most_at_once
        return min(self.last_progress + self._most_idle, at_once)

    def run_callback(self, callback: Any) -> None:
        """Run *callback*, a Handle or another entry with a `run` method; report its error."""
        if type(callback) is not Handle:
            callback.run(self)
            return
        if callback.dropped:
            return
        if RANKS.live:
            RANKS.enter(callback.context.get(of_rank))
        try:
            callback.context.run(callback.callback, *callback.args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.call_exception_handler({"message": f"exception in {callback.callback!r}", "exception": error})

    @contextmanager
    def _as_running_loop(self) -> Iterator[None]:
        if self._closed:
            raise RuntimeError("the simulated loop is closed")
        if self._running:
            raise RuntimeError("the simulated loop is already running")
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=None, finalizer=self._finalize_generator)
        # A notebook's loop may be running in this thread; it is restored afterwards.
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        self._running = True
        try:
            yield
        finally:
            self._running = False
            asyncio._set_running_loop(outer)
            sys.set_asyncgen_hooks(*hooks)

    def _finalize_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        if not self._closed:
            self.create_task(generator.aclose())

    def stop(self) -> None:
        self._stopping = True

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """End the worker threads, and discard all callbacks that are still queued."""
        self._closed = True
        self.workers.close()
        self._ready.clear()

    get_debug = bool  # returns False, for every future; a method would take longer

    def set_debug(self, enabled: bool) -> None:
        if enabled:
            raise UsageError("asyncio's debug mode times callbacks by the wall clock; the simulated loop has none")

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        logging.getLogger("asyncio").error(
            "%s at virtual time %r", context.get("message"), self.time(), exc_info=context.get("exception")
        )


def _finish(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


for _name, _instead in REFUSED.items():
    setattr(SimLoop, _name, refusal(_name, _instead))
