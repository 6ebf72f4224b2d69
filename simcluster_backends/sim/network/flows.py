"""Flows over shared channels in virtual time: who sends at which rate, and when each is done.

Only flows whose rate changes are touched, so an untouched flow's end stays exact.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from simcluster_backends.sim.loop.clock import Alarm, Clock
from simcluster_backends.sim.network.fairshare import Channel, Demand, FairShare

ROUNDING_B = 1e-3
"""Less than this is left by rounding: it is not kept waiting by a channel that stands still."""


class Route:
    """What a flow crosses, worked out once a pair of nodes: *uses* of shared channels, its own bound, its weight."""

    __slots__ = ("bound_Bps", "uses", "weight")

    def __init__(self, uses: tuple[tuple[Channel, float], ...], bound_Bps: float = inf, weight: float = 1.0) -> None:
        self.uses, self.bound_Bps, self.weight = uses, bound_Bps, weight


class Flow(Demand):
    """Bytes on their way; *on_done* is called when the last one is through."""

    __slots__ = ("alarm", "left_B", "on_done", "paused", "since_s")

    def __init__(self, route: Route, size_bytes: float, on_done: Callable[[], None]) -> None:
        Demand.__init__(self, route.uses, route.bound_Bps, route.weight)
        self.left_B = float(size_bytes)
        self.since_s = 0.0
        self.on_done = on_done
        self.paused = False
        self.alarm: Alarm | None = None  # at its end; None while it stands still

    def lay(self, route: Route) -> None:
        """Its bytes go over *route* from now on. Only while it is on no route."""
        self.uses, self.bound_Bps, self.weight = route.uses, route.bound_Bps, route.weight
        self.level, self.rate_Bps = inf, 0.0


class Network:
    """The flows under way. Rates are settled before time moves on: shares held for no time move nothing."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._fair = FairShare()
        self._full_Bps: dict[Channel, float] = {}  # of channels that have changed
        self._left: dict[Channel, float] = {}

    def start(self, route: Route, size_bytes: float, on_done: Callable[[], None]) -> Flow:
        """Puts *size_bytes* on *route*."""
        flow = Flow(route, size_bytes, on_done)
        self.put(flow)
        return flow

    def put(self, flow: Flow) -> None:
        """Puts *flow* on the route that is laid for it."""
        flow.since_s = self._clock._now
        if self._fair.join(flow):
            self._expect(flow)
        else:
            self._clock.settle = self._settle

    def cancel(self, flow: Flow) -> None:
        """Takes *flow* off, if it is on; its share goes to the others at this very time."""
        if flow.alarm is not None:
            flow.alarm.cancelled = True
        if not flow.paused and self._fair.leave(flow):
            self._clock.settle = self._settle

    def pause(self, flow: Flow) -> None:
        """Takes *flow* off for a while: it keeps the bytes that are left."""
        self._note_progress(flow, flow.rate_Bps)
        self.cancel(flow)
        flow.paused = True

    def resume(self, flow: Flow, route: Route) -> None:
        """Puts a paused *flow* on *route*, with what is left."""
        flow.paused = False
        flow.lay(route)
        self.put(flow)

    def join(self, demand: Demand) -> None:
        """Lets *demand* take its share beside the flows, until it leaves; it may come again."""
        demand.level, demand.rate_Bps = inf, 0.0
        if not self._fair.join(demand):
            self._clock.settle = self._settle

    def leave(self, demand: Demand) -> None:
        """Takes *demand* off; its share goes to the others at this very time."""
        if self._fair.leave(demand):
            self._clock.settle = self._settle

    def change(self, channel: Channel, capacity_Bps: float) -> None:
        """From now on *channel* has another capacity, or what faults leave of it."""
        self._full_Bps[channel] = capacity_Bps
        self._fair.change(channel, capacity_Bps * self._left.get(channel, 1.0))
        self._clock.settle = self._settle

    def limit(self, channel: Channel, left: float) -> None:
        """From now on faults leave this share of the capacity of *channel*."""
        full_Bps = self._full_Bps.get(channel, channel.capacity_Bps / self._left.get(channel, 1.0))
        self._left[channel] = left
        self.change(channel, full_Bps)

    def _settle(self) -> None:
        for flow, before_Bps in self._fair.settle():
            if isinstance(flow, Flow):  # others only take their share
                self._note_progress(flow, before_Bps)
                self._expect(flow)

    def _note_progress(self, flow: Flow, rate_Bps: float) -> None:
        """*flow* has had *rate_Bps* until now."""
        now = self._clock._now
        if flow.alarm is not None:
            flow.left_B = max(0.0, flow.left_B - rate_Bps * (now - flow.since_s))
            flow.alarm.cancelled = True
            flow.alarm = None
        flow.since_s = now

    def _expect(self, flow: Flow) -> None:
        """Sets the alarm for the flow's end at its present rate; one that stands still has none."""
        if flow.rate_Bps > 0:
            end_s = self._clock._now + flow.left_B / flow.rate_Bps
            flow.alarm = self._clock.alarm_at(end_s, self._finish, flow)
        elif flow.left_B < ROUNDING_B:
            flow.alarm = self._clock.alarm_at(self._clock._now, self._finish, flow)

    def _finish(self, flow: Flow) -> None:
        if self._fair.leave(flow):
            self._clock.settle = self._settle
        flow.on_done()
