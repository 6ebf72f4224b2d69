"""Flows over shared channels in virtual time: the rate of each, and when it finishes.

A flow is updated when something else holds it than before; otherwise its end stays exact. A change of the rate that all
flows on a full channel have moves the clock of its service, and none of these flows.
"""

from __future__ import annotations

from math import inf

from simcluster_backends.sim.loop.clock import Clock
from simcluster_backends.sim.network.fairshare import Channel, Demand, FairShare
from simcluster_backends.sim.network.flow import Flow, FlowRoute
from simcluster_backends.sim.network.service import VirtualService

__all__ = ["Flow", "FlowRoute", "Network"]

ROUNDING_B = 1e-3
"""Fewer bytes than this are a rounding error: they finish even on a channel without capacity."""


class Network:
    """The flows in flight. Rates are settled before time advances: shares held for zero time move nothing."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.fair = FairShare()
        self._full_Bps: dict[Channel, float] = {}  # capacities before faults, of channels that have changed
        self._left: dict[Channel, float] = {}
        self._services: dict[Channel, VirtualService] = {}
        self._unarmed: dict[VirtualService, None] = {}  # with another first end, or another pace

    def put(self, flow: Flow) -> None:
        """Start *flow* on its route."""
        flow.since_s = self.clock._now
        if self.fair.join(flow):
            self._expect(flow)
        else:
            self.clock.settle = self._settle

    def cancel(self, flow: Flow) -> None:
        """Remove *flow* if it is active; the others get its share at this instant."""
        if flow.alarm is not None:
            flow.alarm.cancelled = True
        self._drop(flow)
        if not flow.paused:
            self.leave(flow)

    def pause(self, flow: Flow) -> None:
        """Remove *flow* temporarily; it keeps its remaining bytes."""
        self._note_progress(flow)
        self.cancel(flow)
        flow.paused = True

    def resume(self, flow: Flow, route: FlowRoute) -> None:
        """Continue a paused *flow* over *route* with its remaining bytes."""
        flow.paused = False
        flow.lay(route)
        self.put(flow)

    def join(self, demand: Demand) -> None:
        """Give *demand* a share alongside the flows until it leaves; it may join again."""
        if not self.fair.join(demand):
            self.clock.settle = self._settle

    def leave(self, demand: Demand) -> None:
        """Remove *demand*; the others get its share at this instant."""
        if self.fair.leave(demand):
            self.clock.settle = self._settle

    def change(self, channel: Channel, capacity_Bps: float) -> None:
        """Change the capacity of *channel*, before what faults take of it."""
        self._full_Bps[channel] = capacity_Bps
        self.fair.change(channel, capacity_Bps * self._left.get(channel, 1.0))
        self.clock.settle = self._settle

    def limit(self, channel: Channel, left: float) -> None:
        """Let faults reduce the capacity of *channel* to the share *left*."""
        full_Bps = self._full_Bps.get(channel, channel.capacity_Bps / self._left.get(channel, 1.0))
        self._left[channel] = left
        self.change(channel, full_Bps)

    def _settle(self) -> None:
        """Update rates and ends as of now."""
        now = self.clock._now
        channels, demands = self.fair.settle()
        for channel in channels:
            service = self._services.get(channel)
            if service is None:
                service = self._services[channel] = VirtualService()
            service.run(now, channel.level if channel.level < inf else 0.0)
            self._unarmed[service] = None
        for flow in demands:
            if isinstance(flow, Flow):  # other demands only take their share
                self._serve(flow, now)
        unarmed, self._unarmed = self._unarmed, {}
        for service in unarmed:
            self._arm(service)

    def _serve(self, flow: Flow, now: float) -> None:
        """Let *flow* continue with what holds it now."""
        if flow.holder is None:
            if flow.alarm is None or flow.pace_Bps != flow.own_Bps:
                self._note_progress(flow)
                self._expect(flow)
            return
        service = self._services[flow.holder]
        if flow.end is None or flow.end.service is not service:
            self._note_progress(flow)
            flow.end = service.add(flow, flow.left_B, now)
            self._unarmed[service] = None

    def _note_progress(self, flow: Flow) -> None:
        """Subtract the bytes that *flow* has sent since the last update; it has no end until there is a new one."""
        now = self.clock._now
        if flow.end is not None:
            flow.left_B = flow.end.service.left_B(flow.end, now)
            self._drop(flow)
        elif flow.alarm is not None:
            flow.left_B = max(0.0, flow.left_B - flow.pace_Bps * (now - flow.since_s))
            flow.alarm.cancelled = True
            flow.alarm = None
        flow.since_s = now

    def _drop(self, flow: Flow) -> None:
        """Take *flow* from its service, if any, which gets an alarm again before time advances."""
        if flow.end is not None:
            service = flow.end.service
            service.drop(flow.end)
            flow.end = None
            if service.alarm is not None:
                service.alarm.cancelled = True
                service.alarm = None
            self._unarmed[service] = None

    def _expect(self, flow: Flow) -> None:
        """Set the alarm for the flow's end at its current rate; none if the rate is 0."""
        flow.pace_Bps = flow.own_Bps
        if flow.pace_Bps > 0:
            end_s = self.clock._now + flow.left_B / flow.pace_Bps
            flow.alarm = self.clock.alarm_at(end_s, self._finish, flow)
        elif flow.left_B < ROUNDING_B:
            flow.alarm = self.clock.alarm_at(self.clock._now, self._finish, flow)

    def _arm(self, service: VirtualService) -> None:
        """Set the alarm for the first end of *service*; none if there is none, or its rate is 0."""
        if service.alarm is not None:
            service.alarm.cancelled = True
            service.alarm = None
        first = service.first()
        if first is None:
            service.rest(self.clock._now)
            return
        if service.pace > 0:
            end_s = service.since_s + (first.at - service.virtual) / service.pace
            service.alarm = self.clock.alarm_at(end_s, self._finish_first, service)
        elif (first.at - service.virtual) * first.flow.weight < ROUNDING_B:
            service.alarm = self.clock.alarm_at(self.clock._now, self._finish_first, service)

    def _finish(self, flow: Flow) -> None:
        flow.alarm = None  # which refers to the flow: no garbage in circles
        if self.fair.leave(flow):
            self.clock.settle = self._settle
        flow.on_done()

    def _finish_first(self, service: VirtualService) -> None:
        now, service.alarm = self.clock._now, None
        flow = service.finish(now)
        assert isinstance(flow, Flow)
        flow.end = None
        following = service.first()
        if following is not None and following.at <= service.virtual:
            service.alarm = self.clock.alarm_at(now, self._finish_first, service)
        else:
            self._unarmed[service] = None  # the others' level rises
        self._finish(flow)
