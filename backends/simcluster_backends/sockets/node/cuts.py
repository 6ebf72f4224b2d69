"""Apply the cuts and resets of a fault plan or a world to the connections of one node, by the node's clock.

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

from simcluster_backends.sockets.wire.messages import CutOrder, HoldOrder, ResetOrder


class CutFollower:
    """The cuts of one node, of the fault plan and of worlds, which may overlap.

    *hold* is called with (peer, whether writing is held, whether reading is held) at each change.
    *give_up* is called with a peer from which a cut has stopped all reading for *dead_s*, and with
    the reason for its loss.
    """

    def __init__(
        self, dead_s: float, *, hold: Callable[[int, bool, bool], object], give_up: Callable[[int, str], object]
    ) -> None:
        self._dead_s = dead_s
        self._hold = hold
        self._give_up = give_up
        # Peer -> [orders in force against writing, against reading]
        self._held: dict[int, list[int]] = {}
        self._timers: list[asyncio.TimerHandle] = []
        self._open: dict[int, tuple[CutOrder, list[asyncio.TimerHandle]]] = {}

    def follow(self, orders: Sequence[HoldOrder], reason: str, at_s: float = 0.0) -> None:
        """Schedule *orders*, without spells that have already ended. The run's clock reads *at_s* now."""
        loop = asyncio.get_running_loop()
        zero_s = loop.time() - at_s
        for order in orders:
            for began_s, end_s in order.spells:
                if end_s > at_s:
                    start_s = max(began_s, at_s)
                    self._timers.append(loop.call_at(zero_s + start_s, self._change, order, +1))
                    if end_s < inf:
                        self._timers.append(loop.call_at(zero_s + end_s, self._change, order, -1))
                    if order.receives and end_s - start_s > self._dead_s:
                        dead_s = zero_s + start_s + self._dead_s
                        self._timers.append(loop.call_at(dead_s, self._lose, order, reason))

    def begin(self, cut: CutOrder) -> None:
        """Begin *cut*; `end` ends it."""
        loop = asyncio.get_running_loop()
        for order in cut.holds:
            self._change(order, +1)
        timers = [loop.call_later(self._dead_s, self._lose, order, cut.reason) for order in cut.holds if order.receives]
        self._open[cut.number] = cut, timers

    def end(self, number: int) -> None:
        """End the cut of *number*, if this node has been told of it."""
        if number in self._open:
            cut, timers = self._open.pop(number)
            for timer in timers:
                timer.cancel()
            for order in cut.holds:
                self._change(order, -1)

    def cancel(self) -> None:
        """Cancel all that is scheduled."""
        for timer in [*self._timers, *(timer for _, timers in self._open.values() for timer in timers)]:
            timer.cancel()

    def _change(self, order: HoldOrder, by: int) -> None:
        for peer in order.peers:
            now = self._held.setdefault(peer, [0, 0])
            now[0] += by * order.sends
            now[1] += by * order.receives
            self._hold(peer, now[0] > 0, now[1] > 0)

    def _lose(self, order: HoldOrder, reason: str) -> None:
        for peer in order.peers:
            self._give_up(peer, reason)


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
