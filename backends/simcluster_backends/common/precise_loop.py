"""Event loops with clocks and timers exact to microseconds, unlike those of uvloop and asyncio.

uvloop's clock and timers count whole milliseconds. So does epoll, on which asyncio's loop waits. A
timer here sleeps until the last whole millisecond before it is due, and then spins the loop.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextvars import Context
from time import monotonic
from typing import Any

TICK_S = 1e-3
"""The resolution of the timers of uvloop and epoll."""

EXACT_S = 0.05
"""The longest wait that is exact: longer ones end up to two ticks late.

An exact wait keeps a core busy for its last tick. In a longer wait, a tick is 2 % of the time or
less, and is not worth that.
"""


class MicrosecondTimer(asyncio.TimerHandle):
    """A timer that waits in several parts; *part* is the handle of the current part."""

    part: Any = None

    def cancel(self) -> None:
        self.part.cancel()
        asyncio.Handle.cancel(self)


def precise(base: type[Any], *, waits: bool) -> type[Any]:
    """Return a subclass of *base*, a loop class of asyncio or uvloop, with an exact clock and
    timers.

    With *waits*, timers of *base* are set by their delay, not by their time.
    """

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
        """A loop with a clock and timers exact to microseconds.

        No method calls another one through `self`, because a subclass may override the other.
        """

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
    """Return asyncio's loop class for this platform, with an exact clock and timers."""
    if sys.platform == "win32":
        return precise(asyncio.ProactorEventLoop, waits=False)
    return precise(asyncio.SelectorEventLoop, waits=False)
