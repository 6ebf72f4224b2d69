"""Progressive filling: all levels rise together, and the channel that fills up first holds its demands at that level.

That can only raise the level at which other channels fill up, hence one heap with lazy updates. Work is per channel and
per pair of channels with demands in common, and per demand only where something else holds the demand than before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from math import inf

from simcluster_backends.sim.network.channels import Channel, Demand

SAME = 1.0 + 1e-12
"""Levels that differ by less are one level: rounding must not spread ends that belong to one moment."""

Limits = list[tuple[float, int, Demand, Channel]]
"""A heap with the lowest limit of the demands of each channel that is not full."""


@dataclass(slots=True)
class Filling:
    """One filling of *channels*, which may hold demands at or above *level*. *loose* holds the unsettled ones.

    Channels with another level than before are added to *changed*, and demands that something else holds to *moved*.
    """

    channels: Sequence[Channel]
    loose: Channel
    level: float
    changed: dict[Channel, None]
    moved: dict[Demand, None]
    _limits: Limits = field(default_factory=list)

    def run(self, unsettled: dict[Demand, None]) -> None:
        """Raise all levels until something holds each demand; *unsettled* are those that *loose* holds."""
        self.moved.update(unsettled)
        for channel in self.channels:
            channel.before, channel.is_open = channel.level, channel.level >= self.level
        self._fill_up()
        for demand in [demand for demand in unsettled if demand.holder is self.loose]:
            demand.stop_at_limit()  # there is none
        for channel in self.channels:
            if channel.is_open:
                channel.level, channel.is_open = inf, False
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
                heappop(heap)
            elif (now := self._no_lower(channel.left_Bps / channel.load)) > share:
                heapreplace(heap, (now, number, channel))
            else:
                heappop(heap)
                self._hold(channel, list(channel.parts), now)
                _fill(channel)

    def _no_lower(self, level: float) -> float:
        """Return *level*, or the last one: in exact arithmetic none is below it, and rounding must not break that."""
        return self.level if level <= self.level * SAME else level

    def _stop_at_limit(self) -> Demand | None:
        """Let the lowest limit hold its demand; return that, None if something else holds it."""
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
        """Let *channel*, which is full at *level*, hold the demands of *holders* that nothing holds at a lower one."""
        for holder in holders:
            if holder.is_open and holder is not channel:
                for demand in list(channel.parts[holder].loads):
                    demand.move(channel)
                    self.moved[demand] = None
        self.level = channel.level = level
        channel.is_open = False


def _measure(channel: Channel) -> None:
    """Set *left_Bps* to what lower demands leave of the capacity, and *load* and *waiting* for the other demands."""
    left_Bps, load, waiting = channel.capacity_Bps - channel.limited.load, 0.0, 0
    for holder, part in channel.parts.items():
        if holder.is_open:
            load += part.load
            waiting += len(part.loads)
        else:
            left_Bps -= part.load * holder.level
    channel.left_Bps, channel.load, channel.waiting = left_Bps, load, waiting


def _take(demand: Demand) -> None:
    """Subtract *demand*, which its limit holds, from its channels."""
    for channel, use in demand.uses:
        if len(channel.demands) > 1:
            channel.left_Bps -= demand.limit_Bps * use
            channel.load -= demand.weight * use
            channel.waiting -= 1


def _fill(channel: Channel) -> None:
    """Subtract the demands that *channel* holds from their channels."""
    level = channel.level
    for other, part in channel.reach.items():
        other.left_Bps -= level * part.load
        other.load -= part.load
        other.waiting -= len(part.loads)
