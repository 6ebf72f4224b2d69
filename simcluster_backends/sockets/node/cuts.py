"""A node's part in a cut: for a while it neither writes to some peers nor reads from them.

To the program this looks like an unplugged cable: nothing arrives, sends do not return, and after `dead_s` the peers
give each other up. Unlike with a cable, the kernel's buffers still move: data handed to the kernel before the cut is on
the other side when it heals, instead of being retransmitted, and no acknowledgement is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import inf

from simcluster_backends.sockets.wire.messages import Hold


class Holds:
    """The execution of *orders*. *hold(peer, writing, reading)* sets what is held; *give_up(peer)* drops the peer."""

    def __init__(
        self,
        orders: Sequence[Hold],
        dead_s: float,
        *,
        hold: Callable[[int, bool, bool], object],
        give_up: Callable[[int], object],
    ) -> None:
        self._orders, self._dead_s = orders, dead_s
        self._hold, self._give_up = hold, give_up
        self._loop = asyncio.get_running_loop()
        self._held: dict[int, list[int]] = {}  # by peer: orders not to write, orders not to read
        self._timers: list[asyncio.TimerHandle] = []

    def start(self, at_s: float = 0.0) -> None:
        """Schedule the orders; the run's clock is at *at_s*. Past spells are skipped, current ones hold from now on."""
        zero_s = self._loop.time() - at_s
        for order in self._orders:
            for began_s, end_s in order.spells:
                if end_s <= at_s:
                    continue
                start_s = max(began_s, at_s)
                self._timers.append(self._loop.call_at(zero_s + start_s, self._change, order, +1))
                if end_s < inf:
                    self._timers.append(self._loop.call_at(zero_s + end_s, self._change, order, -1))
                if order.receives and end_s - start_s > self._dead_s:
                    self._timers.append(self._loop.call_at(zero_s + start_s + self._dead_s, self._lose, order))

    def cancel(self) -> None:
        for timer in self._timers:
            timer.cancel()

    def _change(self, order: Hold, by: int) -> None:
        for peer in order.peers:
            held = self._held.setdefault(peer, [0, 0])
            held[0] += by * order.sends
            held[1] += by * order.receives
            self._hold(peer, held[0] > 0, held[1] > 0)

    def _lose(self, order: Hold) -> None:
        for peer in order.peers:
            self._give_up(peer)
