"""Max-min fair rates, kept up to date as demands come and go.

Max-min fairness (Bertsekas and Gallager, Data Networks, 6.5.2): no demand's rate can grow without a smaller or equal
one shrinking. Certificate: every demand is bound, or crosses a full channel on which no demand is faster. With weights,
"faster" compares rate / weight, a demand's *level*.

A change is solved again from the lowest level that it affects (filling.py), for the channels that it reaches. If the
demands on a channel share no other channel, it is a separate component: its level is one division.
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
        self._unsettled: dict[Demand, None] = {}  # the demands that it holds
        self._touched: dict[Channel, None] = {}
        self._felt_from = inf  # the lowest level that the changes so far affect
        self._shared = 0  # the channels with more than one demand
        self._joined = 0

    def join(self, demand: Demand) -> bool:
        """Add *demand*. Return True if it shares no channel: its rate is set and need not be settled."""
        self._joined += 1
        demand.number = self._joined
        limit_Bps, is_alone = demand.bound_Bps, True
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
                if channel.level < inf:  # a channel that holds no demands delays none
                    self._touched[channel] = None
                    self._felt_from = min(self._felt_from, channel.level)
                if len(others) == 1:
                    self._unshare(channel)
            else:
                del others[demand]
        if holder is self._loose:
            del self._unsettled[demand]
        demand.holder, demand.own_Bps = None, 0.0
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
        """Update all rates. Return the channels at another level than before, and the demands that something else holds
        than then.
        """
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
        """Settle *channel*, whose demands share no other; return False if one that has to be loosened does.

        Each turn finds a higher level, and never one above the final level.
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
            return False  # the capacity has changed
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
        """Return *touched* and the channels connected to them via demands at or above *level*; loosen limited ones."""
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
                continue  # there are no more
            for near in (channel.parts, channel.reach):
                if not near.keys() <= seen.keys():  # most often there is nothing new, and this is faster
                    for other in near:
                        if other not in seen:
                            seen[other] = None
                            if other.level >= level:
                                channels.append(other)
        return channels

    # from and to the demands that nothing holds

    def _loosen(self, demand: Demand) -> None:
        """Let nothing hold *demand*, which is registered nowhere."""
        loose = self._loose
        demand.holder = loose
        self._unsettled[demand] = None
        for channel, use in demand.uses:
            if len(channel.demands) > 1:
                loose.hold(channel, demand, demand.weight * use)
        if demand.limit < inf:
            insort(loose.limits, (demand.limit, demand.number, demand))

    def _loosen_limited(self, demand: Demand) -> None:
        """Let nothing hold *demand*, which its limit has held."""
        for channel, _ in demand.uses:
            if len(channel.demands) > 1:
                channel.unlimit(demand)
        self._loosen(demand)

    def _share(self, channel: Channel) -> None:
        """Make *channel*, so far a limit of its only demand, ready for another."""
        self._shared += 1
        ((demand, use),) = channel.demands.items()
        limit_Bps = demand.limit_now(without=channel)
        if demand.holder is not None:
            demand.holder.hold(channel, demand, demand.weight * use)
            demand.set_limit(limit_Bps)
        elif limit_Bps > demand.limit_Bps:
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
            channel.unlimit(demand)  # the limit that holds it is lower than what it has here
            return
        holder.free(channel, demand)
        demand.set_limit(min(demand.limit_Bps, channel.capacity_Bps / use))
        if holder is channel:
            own_Bps = demand.rate_Bps
            for other, _ in demand.uses:
                if len(other.demands) > 1:
                    holder.free(other, demand)
            if demand.limit < inf:
                holder.limits.clear()
            demand.own_Bps = own_Bps
            channel.level = inf
            self._loosen(demand)
