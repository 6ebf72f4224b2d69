"""Levels computed from what has held each demand until now, corrected where that is no longer max-min fair.

Where one flow ends among thousands, most demands keep their holders. Then the levels are a triangular system: a channel
depends only on those that are full at lower levels. A channel on which a demand is faster than the ones that it holds
takes that demand over, and the channels from there on are solved again. Max-min rates are unique, so once there is no
such channel, these are the levels that a filling finds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from simcluster_backends.sim.network.dense import SAME

if TYPE_CHECKING:
    from simcluster_backends.sim.network.channels import Channel, Demand
    from simcluster_backends.sim.network.dense import Floats, Loads

MOST_PIVOTS = 32
"""A filling is faster than more of them."""


class Pivoting:
    """The open ones among the known *channels*; the others keep their levels. Something holds each demand.

    Demands that something else holds than before are added to *moved*.
    """

    def __init__(self, among: Loads, channels: Sequence[Channel], moved: dict[Demand, None]) -> None:
        known = self._known = among.known
        self._moved = moved
        size = len(known)
        self._loads, self._numbers = among.loads[:size, :size], among.numbers[:size, :size]
        self._open = [channel for channel in channels if channel.is_open]
        capacity_Bps, fixed = np.full(size, inf), np.zeros(size)
        indices = [channel.index for channel in self._open]
        capacity_Bps[indices] = [channel.capacity_Bps - channel.limited.load for channel in self._open]
        held = [(channel.index, channel.level) for channel in known if channel.reach and not channel.is_open]
        fixed[[index for index, _ in held]] = [level for _, level in held]
        self._capacity_Bps, self._fixed = capacity_Bps, fixed
        holding = [channel for channel in self._open if channel in channel.reach]
        holding.sort(key=lambda channel: (channel.level, channel.rank))
        self._order = [channel.index for channel in holding]
        self._levels: list[float] = []  # of the first ones in this order, which are solved
        self._left_Bps: Floats = self._after_solved()
        self._product: Floats = np.empty(size)

    def run(self) -> bool:
        """Set the levels of all open channels. Return False, with no level set, if that takes a filling."""
        for _ in range(MOST_PIVOTS):
            index = self._solve()
            if index < 0:
                index = self._overfull()
            if index < 0:
                return self._publish()
            self._take_over(index)
        return False

    def _after_solved(self) -> Floats:
        """Return what the channels that are solved leave of each capacity."""
        levels = self._fixed.copy()
        levels[self._order[: len(self._levels)]] = self._levels
        left_Bps: Floats = self._capacity_Bps - levels @ self._loads
        return left_Bps

    def _solve(self) -> int:
        """Solve the other channels; return the index of the first one on which another's demand is faster, else -1."""
        order, levels, loads = self._order, self._levels, self._loads
        left_Bps, product = self._left_Bps, self._product
        last = levels[-1] if levels else 0.0
        for at in range(len(levels), len(order)):
            index = order[at]
            row = loads[index]
            level = left_Bps.item(index) / row.item(index)
            if level > last * SAME:
                last = level
                levels.append(level)
            elif level * SAME >= last:
                levels.append(last)
                level = last
            else:
                fastest = self._fastest(index, level)
                if fastest > level * SAME:
                    return index
                level = max(level, fastest)
                place = bisect_right(levels, level)
                levels.insert(place, level)
                order.insert(place, order.pop(at))
            np.multiply(row, level, product)
            np.subtract(left_Bps, product, left_Bps)
        return -1

    def _fastest(self, index: int, level: float) -> float:
        """Return the highest level above *level* of the solved channels with demands on the one of *index*, else 0."""
        for at in range(len(self._levels) - 1, -1, -1):
            if self._levels[at] <= level:
                break
            if self._numbers.item(self._order[at], index):
                return self._levels[at]
        return 0.0

    def _overfull(self) -> int:
        """Return the index of the channel with the largest excess over its capacity, -1 if there is none."""
        excess = self._left_Bps + (SAME - 1.0) * self._capacity_Bps
        index = int(excess.argmin())
        return index if excess.item(index) < 0.0 else -1

    def _take_over(self, index: int) -> None:
        """Let the channel of *index* hold the demands that are at least as fast as its level will be then."""
        order, levels, loads, known = self._order, self._levels, self._loads, self._known
        left_Bps, load, place = self._left_Bps.item(index), loads.item(index, index), len(levels)
        others: list[Channel] = []
        for at in range(len(levels) - 1, -1, -1):
            other = order[at]
            part = loads.item(other, index)
            if part and other != index:
                if load and left_Bps > load * levels[at] * SAME:
                    break
                left_Bps += levels[at] * part
                load += part
                place = at
                others.append(known[other])
        channel = known[index]
        for holder in others:
            for demand in list(channel.parts[holder].loads):
                demand.move(channel)
                self._moved[demand] = None
        kept = [other for other in order[place:] if other != index and self._numbers.item(other, other)]
        order[place:] = [index, *kept]
        del levels[place:]
        self._left_Bps = self._after_solved()

    def _publish(self) -> bool:
        found = [(self._known[index], level) for index, level in zip(self._order, self._levels, strict=True)]
        for channel, level in found:
            if channel.limits and channel.limits[0][0] <= level:
                return False
        for channel in self._open:
            channel.level, channel.is_open = inf, False
        for rank, (channel, level) in enumerate(found):
            channel.level, channel.rank = level, rank
        return True
