"""Flows over shared channels in virtual time: the rate of each, and when it finishes.

Only flows whose rate changes are updated, so the end of all others stays exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from simcluster_backends.sim.loop.clock import Alarm, Clock
from simcluster_backends.sim.network.fairshare import Channel, Demand, FairShare

ROUNDING_B = 1e-3
"""Fewer bytes than this are a rounding error: they finish even on a channel without capacity."""


class Route(NamedTuple):
    """The path of a flow, computed once per pair of nodes: *uses* of shared channels, a bound and a weight."""

    uses: Sequence[tuple[Channel, float]]
    bound_Bps: float = inf
    weight: float = 1.0


@dataclass(slots=True, eq=False)
class Flow(Demand):
    """Bytes in flight; *on_done* is called when the last one has passed."""

    left_B: float = field(kw_only=True)
    on_done: Callable[[], None] = field(kw_only=True)
    since_s: float = 0.0
    paused: bool = False
    alarm: Alarm | None = None  # at its end; None while its rate is 0

    def lay(self, route: Route) -> None:
        """Use *route* from now on. Allowed only while the flow is off the network."""
        self.uses, self.bound_Bps, self.weight = route
        self.level, self.rate_Bps = inf, 0.0


class Network:
    """The flows in flight. Rates are settled before time advances: shares held for zero time move nothing."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._fair = FairShare()
        self._full_Bps: dict[Channel, float] = {}  # capacities before faults, of channels that have changed
        self._left: dict[Channel, float] = {}

    def put(self, flow: Flow) -> None:
        """Start *flow* on its route."""
        flow.since_s = self.clock._now
        if self._fair.join(flow):
            self._expect(flow)
        else:
            self.clock.settle = self._settle

    def cancel(self, flow: Flow) -> None:
        """Remove *flow* if it is active; the others get its share at this instant."""
        if flow.alarm is not None:
            flow.alarm.cancelled = True
        if not flow.paused:
            self.leave(flow)

    def pause(self, flow: Flow) -> None:
        """Remove *flow* temporarily; it keeps its remaining bytes."""
        self._note_progress(flow, flow.rate_Bps)
        self.cancel(flow)
        flow.paused = True

    def resume(self, flow: Flow, route: Route) -> None:
        """Continue a paused *flow* over *route* with its remaining bytes."""
        flow.paused = False
        flow.lay(route)
        self.put(flow)

    def join(self, demand: Demand) -> None:
        """Give *demand* a share alongside the flows until it leaves; it may join again."""
        demand.level, demand.rate_Bps = inf, 0.0
        if not self._fair.join(demand):
            self.clock.settle = self._settle

    def leave(self, demand: Demand) -> None:
        """Remove *demand*; the others get its share at this instant."""
        if self._fair.leave(demand):
            self.clock.settle = self._settle

    def change(self, channel: Channel, capacity_Bps: float) -> None:
        """Change the capacity of *channel*, before what faults take of it."""
        self._full_Bps[channel] = capacity_Bps
        self._fair.change(channel, capacity_Bps * self._left.get(channel, 1.0))
        self.clock.settle = self._settle

    def limit(self, channel: Channel, left: float) -> None:
        """Let faults reduce the capacity of *channel* to the share *left*."""
        full_Bps = self._full_Bps.get(channel, channel.capacity_Bps / self._left.get(channel, 1.0))
        self._left[channel] = left
        self.change(channel, full_Bps)

    def _settle(self) -> None:
        for flow, before_Bps in self._fair.settle():
            if isinstance(flow, Flow):  # other demands only take their share
                self._note_progress(flow, before_Bps)
                self._expect(flow)

    def _note_progress(self, flow: Flow, rate_Bps: float) -> None:
        """Subtract the bytes that *flow* has sent at *rate_Bps* since the last update."""
        now = self.clock._now
        if flow.alarm is not None:
            flow.left_B = max(0.0, flow.left_B - rate_Bps * (now - flow.since_s))
            flow.alarm.cancelled = True
            flow.alarm = None
        flow.since_s = now

    def _expect(self, flow: Flow) -> None:
        """Set the alarm for the flow's end at its current rate; none if the rate is 0."""
        if flow.rate_Bps > 0:
            end_s = self.clock._now + flow.left_B / flow.rate_Bps
            flow.alarm = self.clock.alarm_at(end_s, self._finish, flow)
        elif flow.left_B < ROUNDING_B:
            flow.alarm = self.clock.alarm_at(self.clock._now, self._finish, flow)

    def _finish(self, flow: Flow) -> None:
        flow.alarm = None  # which refers to the flow: no garbage in circles
        if self._fair.leave(flow):
            self.clock.settle = self._settle
        flow.on_done()
