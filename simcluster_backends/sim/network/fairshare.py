"""Max-min fair rates, kept up to date as demands come and go.

Max-min fairness (Bertsekas and Gallager, Data Networks, 6.5.2): no demand's rate can grow without a smaller or equal
one shrinking. Certificate: every demand is bound, or crosses a full channel on which no demand is faster. With weights,
"faster" compares rate / weight, a demand's *level*.

Progressive filling: all levels rise together; the channel that fills up first freezes its demands at that level, which
can only raise the level at which others fill up; hence one heap with lazy updates. Demands frozen below the level at
which a change first matters keep their rates: filling would proceed identically up to there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import inf


@dataclass(slots=True, eq=False)
class Channel:
    """A capacity shared by demands. *demands* maps each demand to the share of its rate that counts here."""

    name: str
    capacity_Bps: float
    demands: dict[Demand, float] = field(default_factory=dict)  # in order of joining; a set would iterate by address
    _stamp: int = 0
    _left_Bps: float = 0.0
    _load: float = 0.0
    _waiting: int = 0


@dataclass(slots=True, eq=False)
class Demand:
    """One flow's demand for bandwidth. *uses* are (channel, share of the rate that counts there), each channel once.

    *bound_Bps* is its maximum rate regardless of sharing.
    """

    uses: Sequence[tuple[Channel, float]]
    bound_Bps: float = inf
    weight: float = 1.0
    rate_Bps: float = 0.0
    level: float = inf  # not frozen anywhere yet
    frozen: bool = True  # except while its rate is computed
    _stamp: int = 0


class FairShare:
    """The demands of one network. After `join` and `leave`, `settle` updates the rates."""

    def __init__(self) -> None:
        self._touched: dict[Channel, None] = {}
        self._joined: dict[Demand, None] = {}
        self._felt_from = inf  # the lowest level that the changes so far affect
        self._stamp = 0

    def join(self, demand: Demand) -> bool:
        """Add *demand*. Return True if it shares no channel: its rate is set and need not be settled."""
        rate_Bps, alone = demand.bound_Bps, True
        for channel, use in demand.uses:
            if channel.demands:
                alone = False
            elif channel.capacity_Bps < rate_Bps * use:
                rate_Bps = channel.capacity_Bps / use
            channel.demands[demand] = use
        if alone:
            demand.rate_Bps, demand.level = rate_Bps, rate_Bps / demand.weight
        else:
            self._joined[demand] = None
        return alone

    def leave(self, demand: Demand) -> bool:
        """Remove *demand*. Return True if that may change other rates."""
        felt = False
        for channel, _ in demand.uses:
            del channel.demands[demand]
            if channel.demands:
                self._touched[channel] = None
                felt = True
        if felt:
            self._felt_from = min(self._felt_from, demand.level)
        self._joined.pop(demand, None)
        return felt

    def change(self, channel: Channel, capacity_Bps: float) -> None:
        """Change the capacity of *channel*."""
        channel.capacity_Bps = capacity_Bps
        self._touched[channel] = None
        self._felt_from = 0.0

    def settle(self) -> list[tuple[Demand, float]]:
        """Update all rates; return the demands with a changed rate, each with its previous rate."""
        for channel in dict.fromkeys([channel for demand in self._joined for channel, _ in demand.uses]):
            self._touched[channel] = None
            # A channel fills up no earlier than at the common level of all its demands.
            load = sum([use * other.weight for other, use in channel.demands.items()])
            self._felt_from = min(self._felt_from, channel.capacity_Bps / load)
        self._joined.clear()
        from_level, touched = self._felt_from, self._touched
        self._felt_from, self._touched = inf, {}
        demands, channels = self._affected(touched, from_level)
        before = [(demand, demand.rate_Bps) for demand in demands]
        _fill(demands, channels, from_level)
        return [(demand, rate_Bps) for demand, rate_Bps in before if demand.rate_Bps != rate_Bps]

    def _affected(self, touched: dict[Channel, None], from_level: float) -> tuple[list[Demand], list[Channel]]:
        """Return the demands at or above *from_level* connected to *touched* via each other, and their channels.

        Set each channel's *_left_Bps* to the capacity that lower demands leave, *_load* to what the affected demands
        use per level, and *_waiting* to their number.
        """
        self._stamp = stamp = self._stamp + 1
        demands: list[Demand] = []
        channels = list(touched)
        for channel in channels:
            channel._stamp = stamp
        for channel in channels:
            left_Bps, load, waiting = channel.capacity_Bps, 0.0, 0
            for demand, use in channel.demands.items():
                if demand.level < from_level:
                    left_Bps -= demand.rate_Bps * use
                    continue
                load += demand.weight * use
                waiting += 1
                if demand._stamp != stamp:
                    demand._stamp = stamp
                    demand.frozen = False
                    demands.append(demand)
                    for other, _ in demand.uses:
                        if other._stamp != stamp:
                            other._stamp = stamp
                            channels.append(other)
            channel._left_Bps, channel._load, channel._waiting = left_Bps, load, waiting
        return demands, channels


def _fill(demands: list[Demand], channels: list[Channel], level: float) -> None:
    """Raise the level of *demands*, all unfrozen, from *level* on until each is frozen."""
    heap: list[tuple[float, int, Channel | Demand]] = [
        (channel._left_Bps / channel._load, number, channel)
        for number, channel in enumerate(channels)
        if channel._waiting
    ]
    # A bound acts like a private channel of the demand.
    heap += [
        (demand.bound_Bps / demand.weight, number, demand)
        for number, demand in enumerate(demands, start=len(channels))
        if demand.bound_Bps < inf
    ]
    heapify(heap)
    to_freeze = len(demands)
    while to_freeze:
        share, number, full = heappop(heap)
        if isinstance(full, Demand):
            if not full.frozen:
                # In exact arithmetic no share is below the last freezing level; rounding must not break that.
                level = max(level, share)
                _freeze(full, level, full.bound_Bps)
                to_freeze -= 1
        elif full._waiting:
            now = max(level, full._left_Bps / full._load)
            if now > share:
                heappush(heap, (now, number, full))
                continue
            level = now
            for demand in [demand for demand in full.demands if not demand.frozen]:
                _freeze(demand, level, level * demand.weight)
                to_freeze -= 1


def _freeze(demand: Demand, level: float, rate_Bps: float) -> None:
    demand.frozen = True
    demand.level, demand.rate_Bps = level, rate_Bps
    weight = demand.weight
    for channel, use in demand.uses:
        channel._left_Bps -= rate_Bps * use
        channel._load -= weight * use
        channel._waiting -= 1
