"""A node's own part in a cut: for a while it neither writes to some peers nor reads from them.

What it imitates is a cable that is pulled, seen from the program: nothing arrives, a send does not return, and after
`dead_s` the peers give each other up. What it does not imitate: the kernel's buffers still move, so what had been
handed to the kernel when the cut began is on the other side when it heals, rather than sent again by TCP, and no
acknowledgement is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import inf

from simcluster_backends.sockets.wire.messages import Hold


class Holds:
    """Carries out *orders*. *hold(peer, writing, reading)* says what is held now; *give_up(peer)* that it is lost."""

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
        """The run's clock is at *at_s* now: what is over is over, and what holds, holds from now on."""
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
