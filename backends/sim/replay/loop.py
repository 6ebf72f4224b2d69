"""The simulated loop, made to run each node's callbacks when its script says, and at no other time.

This file knows callbacks and whose they are. It must not know what is in a script.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from backends.sim.loop.event_loop import Handle, SimLoop, SimTask, Timer
from backends.sim.loop.suspended import owner_of_task
from backends.sim.replay.script import Script

T = TypeVar("T")


class ReplayLoop(SimLoop):
    """Callbacks, timers, tasks and readings of the clock that are a script's go to it."""

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        context = contextvars.copy_context() if context is None else context
        owner = context.get(owner_of_task)
        handle = Handle(callback, args, context)
        (owner.ready if isinstance(owner, Script) else self._ready).append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Timer:
        return self.call_at(delay, callback, *args, context=context)  # when does not matter: its turn is in the script

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Timer:
        owner = owner_of_task.get()
        assert isinstance(owner, Script), "only nodes set timers"
        timer = Timer(when, callback, args, self, context)
        owner.arm(timer)
        return timer

    def time(self) -> float:
        owner = owner_of_task.get()
        return owner.read() if isinstance(owner, Script) else super().time()

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: contextvars.Context | None = None
    ) -> SimTask[T]:
        owner = owner_of_task.get()
        number = owner.next_task() if isinstance(owner, Script) else self.next_number()
        return SimTask(coro, number, loop=self, name=name, context=context)

    def play(self, handle: Handle | Timer) -> None:
        """Runs *handle* now. A sys.exit() is its task's exception, as on a real node."""
        with suppress(SystemExit):
            handle.run(self)

    def play_all(self, scripts: Sequence[Script]) -> None:
        """Until all are through, or none can go on. Raises ReplayDiverged."""
        with self._as_running_loop():
            went_on = True
            while went_on and any(script.open for script in scripts):
                went_on = False
                for script in scripts:
                    went_on |= script.advance()

    def end_all(self, scripts: Sequence[Script]) -> None:
        """Cancels what is left, so that nothing is destroyed while it is pending."""
        with self._as_running_loop():
            for _ in range(100):  # a task may refuse once or twice; one that always does is left alone
                left = [task for task in asyncio.all_tasks(self) if isinstance(task, SimTask)]
                for task in sorted(left, key=lambda task: task.number):
                    task.cancel()
                for script in scripts:
                    for _ in range(len(script.ready)):
                        self.play(script.ready.popleft())
                if not left:
                    return
