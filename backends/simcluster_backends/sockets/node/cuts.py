"""A node's part in cuts and resets, by its clock.

A reset breaks the connection to a peer at once. In a cut, the node neither writes to some peers nor reads from them.

To the program a cut looks like an unplugged cable: nothing arrives, sends do not return, and after `dead_s` the peers
give each other up. Unlike with a cable, the kernel's buffers still move: data handed to the kernel before the cut is on
the other side when it heals, instead of being retransmitted, and no acknowledgement is missing.
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
    """Schedule *orders* from *at_s* of the run's clock, now; spells before that are skipped. Return the timers.

    *hold(peer, writing, reading)* sets what is held; *give_up(peer)* drops the peer.
    """
    held: dict[int, list[int]] = {}  # by peer: orders not to write, orders not to read

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
    """Schedule *orders* from *at_s* of the run's clock, now, without those before that. Return the timers."""
    loop = asyncio.get_running_loop()
    zero_s = loop.time() - at_s
    times = [(time_s, peer) for order in orders for time_s in order.times_s for peer in order.peers]
    return [loop.call_at(zero_s + time_s, reset, peer) for time_s, peer in times if time_s >= at_s]
