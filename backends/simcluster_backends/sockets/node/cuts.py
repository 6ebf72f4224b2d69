"""Apply a fault plan's cuts and resets to the connections of one node, by the node's clock.

A reset breaks the connection to a peer at once. In a cut, the node stops writing to some peers,
reading from them, or both.

To the program a cut looks like an unplugged cable: nothing arrives, sends do not return, and after
`dead_s` the peers lose each other. Unlike with a cable, the kernel still delivers its buffers. Data
that was handed to the kernel before the cut has arrived when the cut heals, and no acknowledgement
is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import inf

from simcluster_backends.sockets.wire.messages import HoldOrder, ResetOrder


def follow(
    orders: Sequence[HoldOrder],
    dead_s: float,
    *,
    hold: Callable[[int, bool, bool], object],
    give_up: Callable[[int], object],
    at_s: float = 0.0,
) -> list[asyncio.TimerHandle]:
    """Schedule *orders*, without spells that have already ended; return the timers.

    The run's clock reads *at_s* now. *hold* is called with (peer, whether writing is held, whether
    reading is held) at each change. *give_up* is called with a peer from which a cut has stopped
    all reading for *dead_s*.
    """
    # Peer -> [orders in force against writing, against reading]: cuts may overlap.
    held: dict[int, list[int]] = {}

    def change(order: HoldOrder, by: int) -> None:
        for peer in order.peers:
            now = held.setdefault(peer, [0, 0])
            now[0] += by * order.sends
            now[1] += by * order.receives
            hold(peer, now[0] > 0, now[1] > 0)

    def lose(order: HoldOrder) -> None:
        for peer in order.peers:
            give_up(peer)

    loop, timers = asyncio.get_running_loop(), []
    zero_s = loop.time() - at_s
    for order in orders:
        for began_s, end_s in order.spells:
            if end_s > at_s:
                start_s = max(began_s, at_s)
                timers.append(loop.call_at(zero_s + start_s, change, order, +1))
                if end_s < inf:
                    timers.append(loop.call_at(zero_s + end_s, change, order, -1))
                if order.receives and end_s - start_s > dead_s:
                    timers.append(loop.call_at(zero_s + start_s + dead_s, lose, order))
    return timers


def follow_resets(
    orders: Sequence[ResetOrder], *, reset: Callable[[int], object], at_s: float = 0.0
) -> list[asyncio.TimerHandle]:
    """Schedule *orders*, without times that have already passed; return the timers.

    The run's clock reads *at_s* now. *reset* is called with a peer at each time.
    """
    loop = asyncio.get_running_loop()
    zero_s = loop.time() - at_s
    times = [(time_s, peer) for order in orders for time_s in order.times_s for peer in order.peers]
    return [loop.call_at(zero_s + time_s, reset, peer) for time_s, peer in times if time_s >= at_s]
