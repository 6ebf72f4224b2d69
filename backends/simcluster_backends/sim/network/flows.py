"""Flows over shared channels in virtual time: the rate of each, and when it finishes.

A flow is updated only when its holder changes; until then its end stays exact. A new level of a
full channel moves the clock of that channel's service, and touches none of the flows that it holds.
"""

from __future__ import annotations

from math import inf

from simcluster_backends.sim.loop.clock import Clock
from simcluster_backends.sim.network.fairshare import Channel, Demand, FairShare
from simcluster_backends.sim.network.flow import Flow, FlowRoute
from simcluster_backends.sim.network.virtual_service import VirtualService

__all__ = ["Flow", "FlowRoute", "Network"]

ROUNDING_B = 1e-3
"""A flow with fewer bytes left finishes even without capacity: they are a rounding error."""


class Network:
    """The flows in flight. Rates are settled just before time advances, when they matter."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.fair = FairShare()
        self._full_Bps: dict[Channel, float] = {}  # capacities without faults, of changed channels
        self._left: dict[Channel, float] = {}  # the share of the capacity that faults leave
        self._services: dict[Channel, VirtualService] = {}
        self._unarmed: dict[VirtualService, None] = {}  # services that need a new alarm

    def put(self, flow: Flow) -> None:
        """Start *flow* on its route."""
        flow.since_s = self.clock.now_s
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
        """Change the capacity that *channel* has without faults."""
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
        now = self.clock.now_s
        channels, demands = self.fair.settle()
        for channel in channels:
            service = self._services.get(channel)
            if service is None:
                service = self._services[channel] = VirtualService()
            service.run(now, channel.level if channel.level < inf else 0.0)
            self._unarmed[service] = None
        for flow in demands:
            if isinstance(flow, Flow):  # background traffic has no end to update
                self._serve(flow, now)
        unarmed, self._unarmed = self._unarmed, {}
        for service in unarmed:
            self._arm(service)

    def _serve(self, flow: Flow, now: float) -> None:
        """Let *flow* continue with its current holder: a full channel, or its own limit."""
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
        """Subtract the bytes that *flow* has sent since its last update; discard its end."""
        now = self.clock.now_s
        if flow.end is not None:
            flow.left_B = flow.end.service.left_B(flow.end, now)
            self._drop(flow)
        elif flow.alarm is not None:
            flow.left_B = max(0.0, flow.left_B - flow.pace_Bps * (now - flow.since_s))
            flow.alarm.cancelled = True
            flow.alarm = None
        flow.since_s = now

    def _drop(self, flow: Flow) -> None:
        """Remove *flow* from its service, if any; `_settle` will set the alarm of the service."""
        if flow.end is not None:
            service = flow.end.service
            service.drop(flow.end)
            flow.end = None
            if service.alarm is not None:
                service.alarm.cancelled = True
                service.alarm = None
            self._unarmed[service] = None

    def _expect(self, flow: Flow) -> None:
        """Set the alarm for the flow's end at its current rate.

        At a rate of 0, set none unless the remaining bytes are a rounding error.
        """
        flow.pace_Bps = flow.own_Bps
        if flow.pace_Bps > 0:
            end_s = self.clock.now_s + flow.left_B / flow.pace_Bps
            flow.alarm = self.clock.alarm_at(end_s, self._finish, flow)
        elif flow.left_B < ROUNDING_B:
            flow.alarm = self.clock.alarm_at(self.clock.now_s, self._finish, flow)

    def _arm(self, service: VirtualService) -> None:
        """Set the alarm for the first end of *service*, if there is one.

        At a pace of 0, set none unless the remaining bytes are a rounding error.
        """
        if service.alarm is not None:
            service.alarm.cancelled = True
            service.alarm = None
        first = service.first()
        if first is None:
            service.rest(self.clock.now_s)
            return
        if service.pace > 0:
            end_s = service.since_s + (first.at - service.virtual) / service.pace
            service.alarm = self.clock.alarm_at(end_s, self._finish_first, service)
        elif (first.at - service.virtual) * first.flow.weight < ROUNDING_B:
            service.alarm = self.clock.alarm_at(self.clock.now_s, self._finish_first, service)

    def _finish(self, flow: Flow) -> None:
        flow.alarm = None  # it refers to the flow: a cycle would be left to the garbage collector
        if self.fair.leave(flow):
            self.clock.settle = self._settle
        flow.on_done()

    def _finish_first(self, service: VirtualService) -> None:
        now = self.clock.now_s
        service.alarm = None
        flow = service.finish(now)
        assert isinstance(flow, Flow)
        flow.end = None
        following = service.first()
        if following is not None and following.at <= service.virtual:
            service.alarm = self.clock.alarm_at(now, self._finish_first, service)
        else:
            self._unarmed[service] = None  # its pace changes, as the others' level rises
        self._finish(flow)
