"""The pacer of a simulated server: virtual time follows real time, at most a tick ahead.

If this machine computes more slowly than the simulated cluster would, virtual time falls behind by
`RequestBroker.lag_s`, and catches up as soon as it can. So no token comes earlier than predicted,
counted from the moment at which the server was last idle.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from simcluster.lm.serving.desk.request_broker import RequestBroker

TICK_S: Final = 0.01
"""The interval at which virtual time is compared with real time."""

IDLE_S: Final = 0.5
"""Limit on how long an idle loop blocks. A request ends the wait; Ctrl-C takes effect after it."""


async def pace(
    front: RequestBroker, now: Callable[[], float] = time.monotonic, block: Callable[[float], object] = time.sleep
) -> None:
    """At every tick, pass on orders of *front*, and block until real time reaches virtual time.

    *block* blocks the thread of the simulation, not only this task. Virtual time stands still while
    no request is open. This coroutine never returns: cancel its task.
    """
    due_s = now()
    while True:
        await asyncio.sleep(TICK_S)
        if front.is_idle:
            front.lag_s = 0.0
            front.wait(IDLE_S)
            due_s = now()
        else:
            due_s += TICK_S
            early_s = due_s - now()
            if early_s > 0:
                block(early_s)
            front.lag_s = max(0.0, -early_s)
        front.drain()
