"""Event loops with a clock and timers that are exact to microseconds: neither uvloop's nor asyncio's own are.

uvloop's clock and timers have whole milliseconds, and epoll, below asyncio's own loop, waits for whole milliseconds. A
timer here sleeps until the last of those before it is due, and then lets the loop turn until it is.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextvars import Context
from time import monotonic
from typing import Any, Final

TICK_S: Final = 1e-3
"""The resolution of the timers below."""

EXACT_S: Final = 0.05
"""Longer waits end up to two ticks late: the last part of a wait keeps a core busy, and here it is 2 % or less."""


class MicrosecondTimer(asyncio.TimerHandle):
    """A timer that is set in parts; *part* is the handle of the present one."""

    part: Any = None

    def cancel(self) -> None:
        self.part.cancel()
        asyncio.Handle.cancel(self)


def precise(base: type[Any], *, waits: bool) -> type[Any]:
    """Return *base*, a loop of asyncio or uvloop, with an exact clock. *waits*: its timers take delays, not times."""

    def set_part(loop: Any, timer: MicrosecondTimer) -> None:
        left_s = timer.when() - monotonic()
        if left_s <= TICK_S:
            timer.part = base.call_soon(loop, end_part, loop, timer)
            return
        delay_s = left_s - TICK_S if left_s <= EXACT_S else left_s + TICK_S
        set_timer, when = (base.call_later, delay_s) if waits else (base.call_at, monotonic() + delay_s)
        timer.part = set_timer(loop, when, end_part, loop, timer)

    def end_part(loop: Any, timer: MicrosecondTimer) -> None:
        if timer.when() > monotonic():
            set_part(loop, timer)
        elif not timer.cancelled():
            timer._run()

    class MicrosecondLoop(base):  # type: ignore[misc]
        """A loop with a clock and timers to the microsecond. No method calls another that a subclass may override."""

        def time(self) -> float:
            return monotonic()

        def call_later(self, delay: float, *call: Any, context: Context | None = None) -> asyncio.TimerHandle:
            return MicrosecondLoop.call_at(self, monotonic() + delay, *call, context=context)

        def call_at(
            self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
        ) -> asyncio.TimerHandle:
            timer = MicrosecondTimer(when, callback, args, self, context)
            set_part(self, timer)
            return timer

    return MicrosecondLoop


def asyncios_own() -> type[asyncio.AbstractEventLoop]:
    """Return this platform's loop of asyncio, with an exact clock."""
    if sys.platform == "win32":
        return precise(asyncio.ProactorEventLoop, waits=False)
    return precise(asyncio.SelectorEventLoop, waits=False)
