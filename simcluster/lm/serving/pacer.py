"""The pacer of a simulated server: virtual time follows real time, and is at most a tick ahead.

Where this machine computes slower than the simulated cluster would, virtual time falls behind by `RequestBroker.lag_s`.
It catches up as soon as it can, so a token is never earlier than predicted, counted from when the server was last idle.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from simcluster.lm.serving.desk.front import RequestBroker

TICK_S: Final = 0.01

IDLE_S: Final = 0.5
"""How long an idle loop is blocked at a time; a request ends it sooner, an interrupt then."""


async def pace(
    front: RequestBroker, now: Callable[[], float] = time.monotonic, block: Callable[[float], object] = time.sleep
) -> None:
    """At every tick, let orders in and block this loop's thread until real time reaches virtual time; never return.

    Virtual time stands still while no request is open.
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
