"""Channels, and the demands for their bandwidth.

Either a full channel or the demand's own limit bounds the rate of a demand; the one that does
*holds* the demand. A demand's *level* is rate / weight. All demands that one full channel holds are
at that channel's level, so a new level takes no work per demand. The other channels on their paths
need only the total load of these demands, a `DemandSum`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import msgspec

DOUBT = 4096.0
"""A sum of about constant size is recomputed after this number of additions and subtractions.

Each of them has a relative rounding error of at most 1.1e-16, so the sum's stays below 5e-13.
"""


@dataclass(slots=True, eq=False)
class DemandSum:
    """Demands on one channel, with the load of each one there, and their total load."""

    loads: dict[Demand, float] = field(default_factory=dict)  # in order of joining; a set would iterate by address
    load: float = 0.0
    _doubt: float = 0.0  # bounds the rounding error: the sum of the totals at each change

    def add(self, demand: Demand, load: float) -> None:
        self.loads[demand] = load
        self.load += load
        self._doubt += self.load

    def remove(self, demand: Demand) -> None:
        self._doubt += self.load
        self.load -= self.loads.pop(demand)
        if self._doubt > DOUBT * self.load:
            self.load = sum(self.loads.values())
            self._doubt = 0.0

    def again(self) -> DemandSum:
        """Return the same demands with their total load recomputed."""
        load = doubt = 0.0
        for each in self.loads.values():
            load += each
            doubt += load
        return DemandSum(self.loads, load, doubt)


@dataclass(slots=True, eq=False)
class Channel:
    """A capacity that *demands* share: demand -> the share of its rate that counts here.

    With a single demand, a channel is only a limit of that demand. With several demands, *parts*
    groups them by the channel that holds them. *limited* has the demands that their own limits
    hold, with their bytes per second, and *slow* lists these demands by level. *reach* maps a
    channel, this one or another, to the part there that this channel holds; *limits* lists the
    limits of the demands in these parts.
    """

    name: str
    capacity_Bps: float
    demands: dict[Demand, float] = field(default_factory=dict)
    level: float = inf  # finite only if the channel is full and holds demands
    parts: dict[Channel, DemandSum] = field(default_factory=dict)
    reach: dict[Channel, DemandSum] = field(default_factory=dict)
    limits: list[tuple[float, int, Demand]] = field(default_factory=list)
    limited: DemandSum = field(default_factory=DemandSum)
    slow: list[tuple[float, int, Demand]] = field(default_factory=list)
    # The fields below belong to Filling, while it computes rates.
    is_open: bool = False  # not full yet
    before: float = inf  # the level before this filling
    left_Bps: float = 0.0  # the capacity for demands that nothing holds yet
    load: float = 0.0  # the load of these demands
    waiting: int = 0  # the number of these demands

    def hold(self, channel: Channel, demand: Demand, load: float) -> None:
        """Note that this channel holds *demand*, which has *load* on *channel*."""
        part = channel.parts.get(self)
        if part is None:
            part = channel.parts[self] = self.reach[channel] = DemandSum()
        part.add(demand, load)

    def free(self, channel: Channel, demand: Demand) -> None:
        """Undo `hold`."""
        part = channel.parts[self]
        part.remove(demand)
        if not part.loads:
            del channel.parts[self], self.reach[channel]

    def hand_over(self, channel: Channel) -> None:
        """Let *channel* hold all demands that this one holds. They must share no other channel."""
        part = channel.parts.pop(self)
        del self.reach[channel]
        own = channel.parts.get(channel)
        if own is None:
            channel.parts[channel] = channel.reach[channel] = part.again()
            channel.limits, self.limits = self.limits, channel.limits
        else:
            for demand, load in part.loads.items():
                own.add(demand, load)
            for limit in self.limits:
                insort(channel.limits, limit)
            self.limits.clear()
        for demand in part.loads:
            demand.holder = channel

    def limit(self, demand: Demand, use: float) -> None:
        """Note that *demand* is held by its own limit."""
        self.limited.add(demand, demand.limit_Bps * use)
        insort(self.slow, (demand.limit, demand.number, demand))

    def unlimit(self, demand: Demand) -> None:
        """Undo `limit`."""
        self.limited.remove(demand)
        discard(self.slow, demand)

    def is_apart(self, loose: Channel) -> bool:
        """Return whether this channel's level depends on no other channel's.

        That is so if the demands that are not held by their own limits, including those that
        *loose* holds, share no other channel.
        """
        if len(self.reach) > (self in self.reach):
            return False
        for holder in self.parts:
            if holder is not self and holder is not loose:
                return False
        new = self.parts.get(loose)
        return new is None or all(demand.is_only_on(self) for demand in new.loads)

    def fills_from(self, loose: Channel) -> float:
        """Return a level below which this channel, with its *loose* demands, cannot fill up.

        Below the lowest level that changes, a demand that another channel holds takes no more than
        it does now.
        """
        taken_Bps = self.limited.load
        load = 0.0
        for holder, part in self.parts.items():
            if holder is self or holder is loose:
                load += part.load
            else:
                taken_Bps += part.load * holder.level
        return max(0.0, (self.capacity_Bps - taken_Bps) / load) if load else inf


class Demand(msgspec.Struct, eq=False):
    """One flow's demand for bandwidth.

    *uses* has (channel, share of the rate that counts there), with each channel once. *bound_Bps*
    is the maximum rate on any channels. *limit_Bps* is the minimum of *bound_Bps* and the
    capacities of the channels that only this demand uses.
    """

    uses: Sequence[tuple[Channel, float]]
    bound_Bps: float = inf
    weight: float = 1.0
    own_Bps: float = 0.0  # its rate while no full channel holds it
    holder: Channel | None = None  # None: its own limit holds it
    limit_Bps: float = inf
    limit: float = inf  # limit_Bps as a level
    number: int = 0  # in order of joining

    @property
    def rate_Bps(self) -> float:
        holder = self.holder
        return self.own_Bps if holder is None or holder.level == inf else holder.level * self.weight

    @property
    def level(self) -> float:
        holder = self.holder
        return self.own_Bps / self.weight if holder is None or holder.level == inf else holder.level

    def limit_now(self, without: Channel | None = None) -> float:
        """Return the limit as it is now, or as it would be without the channel *without*."""
        limit_Bps = self.bound_Bps
        for channel, use in self.uses:
            if channel is not without and len(channel.demands) == 1 and channel.capacity_Bps < limit_Bps * use:
                limit_Bps = channel.capacity_Bps / use
        return limit_Bps

    def set_limit(self, limit_Bps: float) -> None:
        """Set the limit, also in the list of the channel that holds this demand."""
        limits = self.holder.limits if self.holder is not None else None
        if limits is not None and self.limit < inf:
            discard(limits, self)
        self.limit_Bps, self.limit = limit_Bps, limit_Bps / self.weight
        if limits is not None and self.limit < inf:
            insort(limits, (self.limit, self.number, self))

    def move(self, to: Channel) -> None:
        """Let *to* hold this demand instead of the channel that holds it now."""
        holder = self.holder
        assert holder is not None
        for channel, use in self.uses:
            if len(channel.demands) > 1:
                holder.free(channel, self)
                to.hold(channel, self, self.weight * use)
        if self.limit < inf:
            discard(holder.limits, self)
            insort(to.limits, (self.limit, self.number, self))
        self.holder = to

    def stop_at_limit(self) -> None:
        """Let this demand's own limit hold it instead of a channel."""
        holder = self.holder
        assert holder is not None
        for channel, use in self.uses:
            if len(channel.demands) > 1:
                holder.free(channel, self)
                channel.limit(self, use)
        if self.limit < inf:
            discard(holder.limits, self)
        self.holder = None
        self.own_Bps = self.limit_Bps

    def is_only_on(self, channel: Channel) -> bool:
        """Return whether *channel* is the only one that this demand shares."""
        for other, _ in self.uses:  # noqa: SIM110  # a generator takes twice as long
            if other is not channel and len(other.demands) > 1:
                return False
        return True


def discard(ordered: list[tuple[float, int, Demand]], demand: Demand) -> None:
    """Remove *demand* from *ordered*, which is sorted by limit."""
    del ordered[bisect_left(ordered, (demand.limit, demand.number))]
