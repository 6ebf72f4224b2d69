"""Progressive filling: all levels rise together, and the channel that fills up first holds its demands at that level.

That can only raise the level at which other channels fill up, hence one heap with lazy updates. Work is per channel and
per pair of channels with demands in common, and per demand only where something else holds the demand than before.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace
from math import inf

from simcluster_backends.sim.network.channels import Channel, Demand

SAME = 1.0 + 1e-12
"""Levels that differ by less are one level: rounding must not spread ends that belong to one moment."""

Limits = list[tuple[float, int, Demand, Channel]]
"""A heap with the lowest limit of the demands of each channel that is not full."""


def fill(
    channels: Sequence[Channel],
    unsettled: dict[Demand, None],
    loose: Channel,
    level: float,
    changed: dict[Channel, None],
    moved: dict[Demand, None],
) -> None:
    """Raise the level of all demands of *channels* at or above *level*, and *unsettled* ones that *loose* holds.

    Add the channels with another level to *changed*, and the demands that something else holds to *moved*.
    """
    moved.update(unsettled)
    for channel in channels:
        channel.before, channel.is_open = channel.level, channel.level >= level
    for channel in channels:
        _measure(channel)
    heap = [
        (channel.left_Bps / channel.load, number, channel) for number, channel in enumerate(channels) if channel.waiting
    ]
    limits: Limits = [(*holder.limits[0], holder) for holder in (loose, *channels) if holder.limits and holder.is_open]
    heapify(heap)
    heapify(limits)
    while heap or limits:
        if limits and (not heap or limits[0][0] <= heap[0][0]):
            _stop_at_limit(limits, moved)
            continue
        share, number, channel = heap[0]
        if not channel.waiting:
            heappop(heap)
            continue
        now = channel.left_Bps / channel.load
        # In exact arithmetic no share is below the last level; rounding must not break that.
        if now <= level * SAME:
            now = level
        if now > share:
            heapreplace(heap, (now, number, channel))
            continue
        heappop(heap)
        level = now
        _hold(channel, level, moved)
    for demand in [demand for demand in unsettled if demand.holder is loose]:
        demand.stop_at_limit()  # there is none
    for channel in channels:
        if channel.is_open:
            channel.level, channel.is_open = inf, False
        if channel.level != channel.before:
            changed[channel] = None


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


def _stop_at_limit(limits: Limits, moved: dict[Demand, None]) -> None:
    """Let the lowest limit hold its demand."""
    _, _, demand, holder = heappop(limits)
    if not holder.is_open:
        return
    if demand.holder is holder:
        demand.stop_at_limit()
        moved[demand] = None
        for channel, use in demand.uses:
            if len(channel.demands) > 1:
                channel.left_Bps -= demand.limit_Bps * use
                channel.load -= demand.weight * use
                channel.waiting -= 1
    if holder.limits:
        heappush(limits, (*holder.limits[0], holder))


def _hold(channel: Channel, level: float, moved: dict[Demand, None]) -> None:
    """Let *channel*, which is full at *level*, hold all demands on it that nothing holds at a lower one."""
    for holder, part in list(channel.parts.items()):
        if holder.is_open and holder is not channel:
            for demand in list(part.loads):
                demand.move(channel)
                moved[demand] = None
    channel.level, channel.is_open = level, False
    for other, part in channel.reach.items():
        other.left_Bps -= level * part.load
        other.load -= part.load
        other.waiting -= len(part.loads)
