"""The entries of the simulated loop's queue: ready callbacks, timers, and a Ctrl-C."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any

from simcluster_backends.sim.loop.clock import Alarm
from simcluster_backends.sim.loop.suspended import owner_of_task


class Timer(asyncio.TimerHandle):
    """A timer that can cancel its alarm."""

    __slots__ = ("alarm",)
    alarm: Alarm
    _context: contextvars.Context  # asyncio.Handle's

    def run(self, _: asyncio.AbstractEventLoop) -> None:
        if not self._cancelled:
            self._run()

    def owner(self) -> object:
        return self._context.get(owner_of_task)


class Handle:
    """A ready callback: like asyncio's Handle, but without asking the loop for its debug mode."""

    __slots__ = ("args", "callback", "context", "dropped")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context) -> None:
        self.callback, self.args, self.context = callback, args, context
        self.dropped = False

    def cancel(self) -> None:
        self.dropped = True

    def cancelled(self) -> bool:
        return self.dropped

    def run(self, loop: asyncio.AbstractEventLoop) -> None:
        if self.dropped:
            return
        try:
            self.context.run(self.callback, *self.args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            loop.call_exception_handler({"message": f"exception in {self.callback!r}", "exception": error})

    def owner(self) -> object:
        return self.context.get(owner_of_task)


class Interrupt:
    """A callback that raises KeyboardInterrupt before the next one leaves the queue."""

    def run(self, loop: asyncio.AbstractEventLoop) -> None:
        raise KeyboardInterrupt

    def owner(self) -> object:
        return None
