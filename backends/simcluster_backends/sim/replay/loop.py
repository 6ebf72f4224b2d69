"""A simulated loop that runs each node's callbacks exactly when the node's script says."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from simcluster_backends.sim.loop.callbacks import Handle, Timer, owner_of_task
from simcluster_backends.sim.loop.event_loop import SimLoop, SimTask
from simcluster_backends.sim.replay.script import Script

T = TypeVar("T")


class ReplayLoop(SimLoop):
    """A loop that passes a node's callbacks, timers, tasks and clock readings to its script."""

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
        return self.call_at(delay, callback, *args, context=context)  # the script decides when

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
        number = next(owner.numbers) if isinstance(owner, Script) else self.next_number()
        return SimTask(coro, number, loop=self, name=name, context=context)

    def play(self, handle: Handle | Timer) -> None:
        """Run *handle* now. A sys.exit() becomes its task's exception, as on a real node."""
        with suppress(SystemExit):
            self.run_callback(handle)

    def play_all(self, owners: Sequence[Script]) -> None:
        """Play all scripts until all have finished or none can advance.

        Raise ReplayDiverged if code and record diverge."""
        with self._as_running_loop():
            went_on = True
            while went_on and any(owner.open for owner in owners):
                went_on = False
                for owner in owners:
                    went_on |= owner.advance()

    def end_all(self, owners: Sequence[Script]) -> None:
        """Cancel all remaining tasks, so that none is destroyed while pending."""
        with self._as_running_loop():
            for _ in range(100):  # a task may suppress a cancellation once or twice
                left = self.unfinished()
                for task in left:
                    task.cancel()
                for owner in owners:
                    for _ in range(len(owner.ready)):
                        self.play(owner.ready.popleft())
                if not left:
                    return
