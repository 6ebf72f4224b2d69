"""Max-min fair rates, kept up to date as demands come and go.

Max-min fairness (Bertsekas and Gallager, Data Networks, 6.5.2): no demand's rate can grow
unless a smaller or equal one shrinks. Certificate: every demand is at its bound, or crosses a full
channel on which no demand is faster. With weights, "faster" compares rate / weight, a demand's
*level*.

After a change, filling.py computes the rates again, from the lowest level that is affected and for
the channels that are affected. A channel with demands that share no other channel is a component by
itself: its level is one division.
"""

from __future__ import annotations

from bisect import insort
from math import inf

from simcluster_backends.sim.network.channels import Channel, Demand, discard
from simcluster_backends.sim.network.filling import Filling

__all__ = ["Channel", "Demand", "FairShare"]


class FairShare:
    """The demands of one network. After `join`, `leave` and `change`, `settle` updates the rates."""

    def __init__(self) -> None:
        self._loose = Channel("loose", inf)  # holds the demands that nothing else holds yet
        self._loose.is_open = True
        self._unsettled: dict[Demand, None] = {}  # the demands that _loose holds
        self._touched: dict[Channel, None] = {}  # channels that changed since the last `settle`
        self._felt_from = inf  # the lowest level that the changes so far affect
        self._shared = 0  # the number of channels with more than one demand
        self._joined = 0

    def join(self, demand: Demand) -> bool:
        """Add *demand*. Return True if it shares no channel, so that its rate needs no `settle`."""
        self._joined += 1
        demand.number = self._joined
        limit_Bps = demand.bound_Bps
        is_alone = True
        for channel, use in demand.uses:
            others = channel.demands
            if others:
                is_alone = False
                if len(others) == 1:
                    self._share(channel)
            elif channel.capacity_Bps < limit_Bps * use:
                limit_Bps = channel.capacity_Bps / use
            others[demand] = use
        demand.limit_Bps, demand.limit = limit_Bps, limit_Bps / demand.weight
        if is_alone:
            demand.own_Bps = limit_Bps
        else:
            self._loosen(demand)
        return is_alone

    def leave(self, demand: Demand) -> bool:
        """Remove *demand*. Return True if that may change other rates."""
        holder = demand.holder
        if holder is not None:
            if demand.limit < inf:
                discard(holder.limits, demand)
            demand.limit_Bps = demand.limit = inf
        for channel, _ in demand.uses:
            others = channel.demands
            if len(others) > 1:
                if holder is None:
                    channel.unlimit(demand)
                else:
                    holder.free(channel, demand)
                del others[demand]
                if channel.level < inf:  # a channel that holds no demands slows none
                    self._touched[channel] = None
                    self._felt_from = min(self._felt_from, channel.level)
                if len(others) == 1:
                    self._unshare(channel)
            else:
                del others[demand]
        if holder is self._loose:
            del self._unsettled[demand]
        demand.holder = None
        demand.own_Bps = 0.0
        return bool(self._touched or self._unsettled)

    def change(self, channel: Channel, capacity_Bps: float) -> None:
        """Change the capacity of *channel*."""
        channel.capacity_Bps = capacity_Bps
        if len(channel.demands) > 1:
            self._touched[channel] = None
            self._felt_from = 0.0
            return
        for demand in channel.demands:
            level = demand.level
            if demand.holder is None:
                self._loosen_limited(demand)
            else:
                self._touched[demand.holder] = None
            demand.set_limit(demand.limit_now())
            self._felt_from = min(self._felt_from, level, demand.limit)

    def settle(self) -> tuple[list[Channel], list[Demand]]:
        """Update all rates. Return channels with a new level, and demands with a new holder."""
        loose = self._loose
        changed: dict[Channel, None] = {}
        moved: dict[Demand, None] = {}
        touched = {channel: None for channel in self._touched if len(channel.demands) > 1}
        if loose.reach:
            touched.update(dict.fromkeys(loose.reach))
        for channel in list(touched):
            if channel.is_apart(loose) and self._settle_apart(channel, changed, moved):
                del touched[channel]
        if touched or self._unsettled:
            level = min([self._felt_from, *[channel.fills_from(loose) for channel in loose.reach]])
            level = min([level, *[channel.level for channel in touched]])
            filling = Filling(self._affected(touched, level), loose, level, changed, moved)
            filling.run(self._unsettled)
        self._unsettled.clear()
        self._touched.clear()
        self._felt_from = inf
        return list(changed), list(moved)

    def _settle_apart(self, channel: Channel, changed: dict[Channel, None], moved: dict[Demand, None]) -> bool:
        """Settle *channel*, which `is_apart`; return False if it affects another channel after all.

        Each pass of the loop finds a higher level, never one above the final level.
        """
        loose = self._loose
        if (new := channel.parts.get(loose)) is not None:
            moved.update(dict.fromkeys(new.loads))
            if len(new.loads) == len(self._unsettled):
                loose.hand_over(channel)
                self._unsettled.clear()
            else:
                for demand in list(new.loads):
                    demand.move(channel)
                    del self._unsettled[demand]
        elif channel not in channel.parts and channel.limited.load > channel.capacity_Bps:
            return False  # the capacity has fallen below what the limited demands take
        changed[channel] = None
        while (own := channel.parts.get(channel)) is not None:
            # Rounding must not make a level negative.
            channel.level = level = max(0.0, (channel.capacity_Bps - channel.limited.load) / own.load)
            if channel.limits and channel.limits[0][0] < level:
                demand = channel.limits[0][2]
                demand.stop_at_limit()
            elif channel.slow and channel.slow[-1][0] > level:
                demand = channel.slow[-1][2]
                if not demand.is_only_on(channel):
                    self._felt_from = min(self._felt_from, level)
                    return False
                self._loosen_limited(demand)
                del self._unsettled[demand]
                demand.move(channel)
            else:
                return True
            moved[demand] = None
        channel.level = inf
        return True

    def _affected(self, touched: dict[Channel, None], level: float) -> list[Channel]:
        """Return *touched* and the channels that demands at or above *level* connect to them.

        Let *_loose* hold those of these demands that their own limits hold.
        """
        channels = list(touched)
        seen = {self._loose: None, **touched}
        for channel in channels:
            while channel.slow and channel.slow[-1][0] >= level:
                demand = channel.slow[-1][2]
                self._loosen_limited(demand)
                for other, _ in demand.uses:
                    if other not in seen and len(other.demands) > 1:
                        seen[other] = None
                        channels.append(other)
            if len(seen) > self._shared:
                continue  # all shared channels have been seen
            for near in (channel.parts, channel.reach):
                if not near.keys() <= seen.keys():  # usually nothing is new, and this is faster
                    for other in near:
                        if other not in seen:
                            seen[other] = None
                            if other.level >= level:
                                channels.append(other)
        return channels

    # Demands that nothing holds yet, and channels that gain or lose their second demand.

    def _loosen(self, demand: Demand) -> None:
        """Let *_loose* hold *demand*, which no channel and no limit holds now."""
        loose = self._loose
        demand.holder = loose
        self._unsettled[demand] = None
        for channel, use in demand.uses:
            if len(channel.demands) > 1:
                loose.hold(channel, demand, demand.weight * use)
        if demand.limit < inf:
            insort(loose.limits, (demand.limit, demand.number, demand))

    def _loosen_limited(self, demand: Demand) -> None:
        """Let *_loose* hold *demand*, which its own limit holds now."""
        for channel, _ in demand.uses:
            if len(channel.demands) > 1:
                channel.unlimit(demand)
        self._loosen(demand)

    def _share(self, channel: Channel) -> None:
        """Prepare *channel* for a second demand: until now it is only a limit of the first one."""
        self._shared += 1
        ((demand, use),) = channel.demands.items()
        limit_Bps = demand.limit_now(without=channel)
        if demand.holder is not None:
            demand.holder.hold(channel, demand, demand.weight * use)
            demand.set_limit(limit_Bps)
        elif limit_Bps > demand.limit_Bps:
            # This channel was the demand's limit, so the demand's rate is undetermined again.
            self._loosen_limited(demand)
            self._loose.hold(channel, demand, demand.weight * use)
            demand.set_limit(limit_Bps)
        else:
            channel.limit(demand, use)

    def _unshare(self, channel: Channel) -> None:
        """Make *channel* a limit of the only demand that is left."""
        self._shared -= 1
        ((demand, use),) = channel.demands.items()
        holder = demand.holder
        if holder is None:
            channel.unlimit(demand)  # a lower limit than this channel's capacity holds the demand
            return
        holder.free(channel, demand)
        demand.set_limit(min(demand.limit_Bps, channel.capacity_Bps / use))
        if holder is channel:
            # A channel with one demand holds nothing: the demand keeps its rate until `settle`.
            own_Bps = demand.rate_Bps
            for other, _ in demand.uses:
                if len(other.demands) > 1:
                    holder.free(other, demand)
            if demand.limit < inf:
                holder.limits.clear()
            demand.own_Bps = own_Bps
            channel.level = inf
            self._loosen(demand)
