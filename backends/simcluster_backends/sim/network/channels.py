"""Channels and the demands on them, sorted by what holds each demand: a channel that is full, or its own limit.

A demand's *level* is rate / weight. All demands that one full channel holds are at that channel's level, so no work is
needed per demand when the level changes. Other channels that they cross need only their total load, a `DemandSum`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import msgspec

DOUBT = 4096.0
"""Additions and subtractions at a sum's present size, after which it is summed up again: 5e-13 of rounding at most."""


@dataclass(slots=True, eq=False)
class DemandSum:
    """Demands on one channel, each with a *load* there, and the total of these."""

    loads: dict[Demand, float] = field(default_factory=dict)  # in order of joining; a set would iterate by address
    load: float = 0.0
    _doubt: float = 0.0

    def add(self, demand: Demand, load: float) -> None:
        self.loads[demand] = load
        self.load += load
        self._doubt += self.load

    def remove(self, demand: Demand) -> None:
        self._doubt += self.load
        self.load -= self.loads.pop(demand)
        if self._doubt > DOUBT * self.load:
            self.load, self._doubt = sum(self.loads.values()), 0.0

    def again(self) -> DemandSum:
        """Return the same demands, added up again."""
        load = doubt = 0.0
        for each in self.loads.values():
            load += each
            doubt += load
        return DemandSum(self.loads, load, doubt)


@dataclass(slots=True, eq=False)
class Channel:
    """A capacity shared by demands. *demands* maps each demand to the share of its rate that counts here.

    With a single demand a channel is nothing but a limit of that demand. With more of them, *parts* are its demands by
    the channel that holds them, *limited* the bytes per second of those held by their own limits, which *slow* lists by
    level; *reach* are the parts that it holds, itself included, and *limits* the limits of the demands in them.
    """

    name: str
    capacity_Bps: float
    demands: dict[Demand, float] = field(default_factory=dict)
    level: float = inf  # unless it is full and holds demands
    parts: dict[Channel, DemandSum] = field(default_factory=dict)
    reach: dict[Channel, DemandSum] = field(default_factory=dict)
    limits: list[tuple[float, int, Demand]] = field(default_factory=list)
    limited: DemandSum = field(default_factory=DemandSum)
    slow: list[tuple[float, int, Demand]] = field(default_factory=list)
    # while rates are computed
    is_open: bool = False  # not full yet
    before: float = inf  # the level until now
    left_Bps: float = 0.0
    load: float = 0.0
    waiting: int = 0

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
        """Let *channel* hold all that this one holds: they are on no other channel."""
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
        """Return whether limits hold all demands here, except those, some *loose*, that share no other channel."""
        if len(self.reach) > (self in self.reach):
            return False
        for holder in self.parts:
            if holder is not self and holder is not loose:
                return False
        new = self.parts.get(loose)
        return new is None or all(demand.is_only_on(self) for demand in new.loads)

    def fills_from(self, loose: Channel) -> float:
        """Return a level below which this channel cannot fill up, now that *loose* demands have joined it.

        Demands held elsewhere take no more than until now at any level below the first that changes.
        """
        taken_Bps, load = self.limited.load, 0.0
        for holder, part in self.parts.items():
            if holder is self or holder is loose:
                load += part.load
            else:
                taken_Bps += part.load * holder.level
        return max(0.0, (self.capacity_Bps - taken_Bps) / load) if load else inf


class Demand(msgspec.Struct, eq=False):
    """One flow's demand for bandwidth. *uses* are (channel, share of the rate that counts there), each channel once.

    *bound_Bps* is its maximum rate regardless of sharing, *limit_Bps* the same on channels that it has for itself.
    """

    uses: Sequence[tuple[Channel, float]]
    bound_Bps: float = inf
    weight: float = 1.0
    own_Bps: float = 0.0  # its rate while no full channel holds it
    holder: Channel | None = None  # None: its own limit
    limit_Bps: float = inf
    limit: float = inf  # as a level
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
        """Return the rate to which its bound and the channels that it has for itself limit it."""
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
        """Let *to* hold this demand, which another channel has held."""
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
        """Let this demand's limit hold it, which a channel has held."""
        holder = self.holder
        assert holder is not None
        for channel, use in self.uses:
            if len(channel.demands) > 1:
                holder.free(channel, self)
                channel.limit(self, use)
        if self.limit < inf:
            discard(holder.limits, self)
        self.holder, self.own_Bps = None, self.limit_Bps

    def is_only_on(self, channel: Channel) -> bool:
        """Return whether *channel* is the only one that this demand shares."""
        for other, _ in self.uses:  # noqa: SIM110  # asked for each flow: a generator takes twice as long
            if other is not channel and len(other.demands) > 1:
                return False
        return True


def discard(ordered: list[tuple[float, int, Demand]], demand: Demand) -> None:
    """Remove *demand* from *ordered*, by its limit."""
    del ordered[bisect_left(ordered, (demand.limit, demand.number))]
