"""Progressive filling: all levels rise together, and the channel that fills up first holds its demands at that level.

A channel that fills up can only raise the level at which others fill up, so one heap with lazy
updates is enough. Work is per channel and per pair of channels with demands in common; a single
demand takes work only if it gets a new holder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from math import inf

from simcluster_backends.sim.network.channels import Channel, Demand

SAME = 1.0 + 1e-12
"""Levels within this factor count as one: rounding must not separate simultaneous ends."""

Limits = list[tuple[float, int, Demand, Channel]]
"""A heap with the lowest limit of each channel that is not full and holds demands."""


@dataclass(slots=True)
class Filling:
    """One filling of *channels*, from *level* upwards. *loose* holds the unsettled demands.

    Channels with a new level are added to *changed*, and demands with a new holder to *moved*.
    """

    channels: Sequence[Channel]
    loose: Channel
    level: float
    changed: dict[Channel, None]
    moved: dict[Demand, None]
    _limits: Limits = field(default_factory=list)

    def run(self, unsettled: dict[Demand, None]) -> None:
        """Raise all levels until something other than *loose* holds the *unsettled* demands."""
        self.moved.update(unsettled)
        for channel in self.channels:
            channel.before = channel.level
            channel.is_open = channel.level >= self.level
        self._fill_up()
        for demand in [demand for demand in unsettled if demand.holder is self.loose]:
            demand.stop_at_limit()  # its limit is inf, as nothing bounds its rate
        for channel in self.channels:
            if channel.is_open:
                channel.level = inf
                channel.is_open = False
            if channel.level != channel.before:
                self.changed[channel] = None

    def _fill_up(self) -> None:
        opened = [holder for holder in (self.loose, *self.channels) if holder.limits and holder.is_open]
        self._limits = limits = [(*holder.limits[0], holder) for holder in opened]
        heapify(limits)
        heap = []
        for number, channel in enumerate(self.channels):
            _measure(channel)
            if channel.waiting:
                heap.append((channel.left_Bps / channel.load, number, channel))
        heapify(heap)
        while heap or limits:
            if limits and (not heap or limits[0][0] <= heap[0][0]):
                if (demand := self._stop_at_limit()) is not None:
                    _take(demand)
                continue
            share, number, channel = heap[0]
            if not channel.waiting:
                heappop(heap)  # something else holds all its demands
            elif (now := self._no_lower(channel.left_Bps / channel.load)) > share:
                heapreplace(heap, (now, number, channel))  # the entry was out of date, and too low
            else:
                heappop(heap)
                self._hold(channel, list(channel.parts), now)
                _fill(channel)

    def _no_lower(self, level: float) -> float:
        """Return *level*, or the last level unless *level* exceeds it by more than rounding."""
        return self.level if level <= self.level * SAME else level

    def _stop_at_limit(self) -> Demand | None:
        """Let the lowest limit hold its demand. Return the demand, None if it was held already."""
        _, _, demand, holder = heappop(self._limits)
        if not holder.is_open:
            return None
        stops = demand.holder is holder
        if stops:
            demand.stop_at_limit()
            self.moved[demand] = None
        if holder.limits:
            heappush(self._limits, (*holder.limits[0], holder))
        return demand if stops else None

    def _hold(self, channel: Channel, holders: Sequence[Channel], level: float) -> None:
        """Let *channel*, full at *level*, take over its demands from the open ones of *holders*."""
        for holder in holders:
            if holder.is_open and holder is not channel:
                for demand in list(channel.parts[holder].loads):
                    demand.move(channel)
                    self.moved[demand] = None
        self.level = channel.level = level
        channel.is_open = False


def _measure(channel: Channel) -> None:
    """Set *left_Bps* to the capacity that demands at settled levels leave for the others.

    Set *load* and *waiting* to the total load and the number of these others.
    """
    left_Bps = channel.capacity_Bps - channel.limited.load
    load = 0.0
    waiting = 0
    for holder, part in channel.parts.items():
        if holder.is_open:
            load += part.load
            waiting += len(part.loads)
        else:
            left_Bps -= part.load * holder.level
    channel.left_Bps = left_Bps
    channel.load = load
    channel.waiting = waiting


def _take(demand: Demand) -> None:
    """Subtract *demand*, which its limit holds, from what its channels have left."""
    for channel, use in demand.uses:
        if len(channel.demands) > 1:
            channel.left_Bps -= demand.limit_Bps * use
            channel.load -= demand.weight * use
            channel.waiting -= 1


def _fill(channel: Channel) -> None:
    """Subtract the demands that *channel* holds from what their channels have left."""
    level = channel.level
    for other, part in channel.reach.items():
        other.left_Bps -= level * part.load
        other.load -= part.load
        other.waiting -= len(part.loads)
