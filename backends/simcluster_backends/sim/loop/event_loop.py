"""An asyncio event loop with a `simpy.Environment` as its clock and queue.

Timers go into SimPy's queue. A separate heap would livelock once a delay is below the clock's resolution
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
from typing import Any, NoReturn, TypeVar

from simcluster.errors import UsageError
from simcluster_backends.sim.loop.callbacks import FrozenCallbacks, Handle, Timer, owner_of_task
from simcluster_backends.sim.loop.clock import Alarm, Clock, Endless
from simcluster_backends.sim.loop.tasks import OwnedTasks, SimTask
from simcluster_backends.sim.loop.workers import Workers

T = TypeVar("T")

IDLE_CALLBACKS_LIMIT = 5_000_000
"""Callbacks without progress after which a run is declared endless: about a minute of polling."""


INSTANT_CALLBACKS_LIMIT, INSTANT_CALLBACKS_PER_NODE = 200_000, 1_000
"""The same for callbacks of one instant, none of them an event of the clock: tasks that wait for nothing, such as
`while True: await asyncio.sleep(0)`. About half a second of polling.
"""


class LoopDrained(Exception):
    """Nothing is ready, SimPy's queue is empty, and the awaited task is not done: a deadlock."""


class SimFuture(asyncio.Future[T]):
    """A future that hashes by a number for the same reason; the number is drawn on first use, since few are hashed."""

    number: int | None = None

    def __hash__(self) -> int:
        if self.number is None:
            loop = self.get_loop()
            assert isinstance(loop, SimLoop)
            self.number = loop.next_number()
        return self.number


class SimLoop(asyncio.AbstractEventLoop):
    """Runs coroutines in virtual time. `time()` starts at 0.0 and is exact: a sleep of a year is one event.

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
        self.turns = 0  # callbacks so far
        self._turns_then = 0  # at the last progress
        self._most_turns = self._most_at_once

    def time(self) -> float:
        return self.clock._now

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
        """Return a future that is done in *delay_s*, more than 0, and the alarm that ends it, for the caller to cancel.

        Awaiting it is a sleep in fewer turns than `asyncio.sleep` takes; *context* is the caller's.
        """
        done: asyncio.Future[None] = asyncio.Future(loop=self)
        return done, self.clock.alarm_at(self.clock._now + delay_s, self.rested, (done, context))

    def rested(self, resting: tuple[asyncio.Future[None], contextvars.Context]) -> None:
        """End a rest: let the task that awaits the future of *resting*, with its context, continue."""
        done, context = resting
        if self.frozen.held:  # perhaps its owner: then it has not rested until that resumes
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

    def unfinished_of(self, owner: object) -> list[SimTask[Any]]:
        """Return the tasks of *owner* that have not ended, by number."""
        owned = self._owned.get(owner)
        return owned.unfinished() if owned is not None else []

    def progress(self) -> None:
        """Note progress: see IDLE_CALLBACKS_LIMIT."""
        self._turns_then = self.turns
        self._most_turns = self.turns + self._most_at_once

    def interrupt(self) -> None:
        """Raise KeyboardInterrupt between two callbacks: inside one, it would cost a task its next step.

        May be called from a signal handler.
        """
        self._ready.appendleft(Handle(signal.default_int_handler, (signal.SIGINT, None), contextvars.Context()))

    def run_until_complete(self, future: Any) -> Any:
        """Run until *future* is done. Raise LoopDrained if it never can be, Endless if it seems never to be."""
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
        """Run callbacks until none is ready."""
        ready, frozen, workers = self._ready, self.frozen, self.workers
        most_turns, at_once = self._turns_then + IDLE_CALLBACKS_LIMIT, self.turns + self._most_at_once
        self._most_turns = at_once if at_once < most_turns else most_turns
        while ready:
            self.turns += 1
            if self.turns > self._most_turns:
                at_once = self.turns - self._turns_then <= IDLE_CALLBACKS_LIMIT
                self.progress()  # ending the tasks needs callbacks too
                raise Endless(at_once=at_once)
            callback = ready.popleft()
            if not frozen.held or not frozen.holds(callback):
                if workers.under_way:
                    workers.join(callback.owner())
                callback.run(self)

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
        """Discard everything still queued."""
        self._closed = True
        self.workers.close()
        self._ready.clear()

    get_debug = bool  # returns False; each future asks, and a method would take longer

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


def _refusal(name: str, instead: str) -> Callable[..., NoReturn]:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise UsageError(f"{name} leaves the simulated world; {instead}")

    return refuse


_REFUSED = {
    "write `await node.compute(work, *args, cost=...)` for work": (
        "run_in_executor call_soon_threadsafe subprocess_exec subprocess_shell"
    ),
    "write `await node.send(...)` and `await node.recv(...)` for messages": (
        "create_connection create_server create_datagram_endpoint create_unix_connection create_unix_server "
        "getaddrinfo sock_connect sock_recv sock_sendall add_reader add_writer"
    ),
    "a run is ended from outside": "add_signal_handler",
}
for _instead, _names in _REFUSED.items():
    for _name in _names.split():
        setattr(SimLoop, _name, _refusal(_name, _instead))
