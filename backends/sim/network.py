"""Flows over shared channels in virtual time: who sends at which rate, and when each is done.

This file knows channels, flows and the clock. It must not know nodes, messages or routes' origin. It re-shares only
the flows that (transitively) share a channel with the one that joined or left, and touches only those whose rate
changes, so an untouched flow's end stays exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from backends.sim.fairshare import max_min_rates
from backends.sim.loop import Alarm, Clock


class Channel:
    """One direction of a full-duplex link, both of a half-duplex one, or a contention-free one.

    *capacity_Bps* is shared by all flows, or, if not *shared*, bounds each of them.
    """

    __slots__ = ("capacity_Bps", "flows", "name", "shared")

    def __init__(self, name: str, capacity_Bps: float, *, shared: bool = True) -> None:
        self.name = name
        self.capacity_Bps = capacity_Bps
        self.shared = shared
        self.flows: dict[Flow, None] = {}  # in order of joining; a set would iterate by address


class Route:
    """The channels that a flow crosses, taken apart once: shared ones, and the bound that the others set."""

    __slots__ = ("bound_Bps", "channels")

    def __init__(self, channels: Sequence[Channel]) -> None:
        self.channels = tuple(channel for channel in channels if channel.shared)
        self.bound_Bps = min((channel.capacity_Bps for channel in channels if not channel.shared), default=inf)


class Flow:
    """Bytes on their way along *route*; *on_done* is called when the last one is through."""

    __slots__ = ("alarm", "left_B", "on_done", "rate_Bps", "route", "since_s")

    def __init__(self, route: Route, size_bytes: float, on_done: Callable[[], None]) -> None:
        self.route = route
        self.left_B = float(size_bytes)
        self.rate_Bps = 0.0
        self.since_s = 0.0
        self.on_done = on_done
        self.alarm: Alarm | None = None


class Network:
    """The flows under way. Rates are settled once a moment, before time moves on: shares held for no time move nothing."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._touched: dict[Channel, None] = {}  # channels whose flows must share anew

    def start(self, route: Route, size_bytes: float, on_done: Callable[[], None]) -> Flow:
        """Puts *size_bytes* on *route*."""
        flow = Flow(route, size_bytes, on_done)
        rate_Bps, alone = route.bound_Bps, True
        for channel in route.channels:
            if channel.flows:
                alone = False
            elif channel.capacity_Bps < rate_Bps:
                rate_Bps = channel.capacity_Bps
            channel.flows[flow] = None
        if alone:
            # An idle route needs no solver: the slowest channel decides.
            self._set_rate(flow, rate_Bps)
        else:
            self._touch(route.channels)
        return flow

    def cancel(self, flow: Flow) -> None:
        """Takes *flow* off; its share goes to the others at this very time."""
        if flow.alarm is not None:
            flow.alarm.cancelled = True
        self._leave(flow)

    def _finish(self, flow: Flow) -> None:
        self._leave(flow)
        flow.on_done()

    def _leave(self, flow: Flow) -> None:
        for channel in flow.route.channels:
            del channel.flows[flow]
            if channel.flows:
                self._touch((channel,))

    def _touch(self, channels: Sequence[Channel]) -> None:
        self._touched.update(dict.fromkeys(channels))
        self._clock.settle = self._settle

    def _settle(self) -> None:
        """Gives every flow connected to a touched channel its max-min rate, one connected component at a time."""
        touched, self._touched = self._touched, {}
        seen: dict[Channel, None] = {}
        for channel in touched:
            if channel not in seen:
                flows, channels = _component(channel)
                seen.update(channels)
                self._share(flows, channels)

    def _share(self, flows: dict[Flow, None], channels: dict[Channel, None]) -> None:
        index = {channel: i for i, channel in enumerate(channels)}
        rates = max_min_rates(
            [[index[channel] for channel in flow.route.channels] for flow in flows],
            [channel.capacity_Bps for channel in channels],
            [flow.route.bound_Bps for flow in flows],
        )
        for flow, rate in zip(flows, rates, strict=True):
            if rate != flow.rate_Bps:
                self._set_rate(flow, rate)

    def _set_rate(self, flow: Flow, rate_Bps: float) -> None:
        now = self._clock._now
        if flow.alarm is not None:
            flow.left_B = max(0.0, flow.left_B - flow.rate_Bps * (now - flow.since_s))
            flow.alarm.cancelled = True
        flow.rate_Bps, flow.since_s = rate_Bps, now
        flow.alarm = self._clock.alarm_at(now + flow.left_B / rate_Bps, lambda _: self._finish(flow))


def _component(start: Channel) -> tuple[dict[Flow, None], dict[Channel, None]]:
    """All flows and channels connected to *start* through shared channels, in order of discovery."""
    channels = {start: None}
    flows: dict[Flow, None] = {}
    queue = [start]
    for channel in queue:
        for flow in channel.flows:
            if flow not in flows:
                flows[flow] = None
                for other in flow.route.channels:
                    if other not in channels:
                        channels[other] = None
                        queue.append(other)
    return flows, channels
