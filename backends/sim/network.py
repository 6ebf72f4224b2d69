"""Flows over shared channels in virtual time: who sends at which rate, and when each is done.

This file knows channels, flows and the clock. It must not know nodes, messages or routes' origin. It re-shares only
the flows that (transitively) share a channel with the one that joined or left, and touches only those whose rate
changes, so an untouched flow's end stays exact.
"""

from __future__ import annotations

from collections.abc import Callable
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


class Flow:
    """Bytes on their way through *channels*. *bound_Bps* comes from the contention-free ones among its route."""

    __slots__ = ("alarm", "bound_Bps", "channels", "left_B", "on_done", "rate_Bps", "since_s")

    def __init__(self, route: tuple[Channel, ...], size_bytes: float, on_done: Callable[[], None]) -> None:
        self.channels = tuple(channel for channel in route if channel.shared)
        self.bound_Bps = min((channel.capacity_Bps for channel in route if not channel.shared), default=inf)
        self.left_B = float(size_bytes)
        self.rate_Bps = 0.0
        self.since_s = 0.0
        self.on_done = on_done
        self.alarm: Alarm | None = None


class Network:
    """The flows under way. `start` and `cancel` re-share at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def start(self, route: tuple[Channel, ...], size_bytes: float, on_done: Callable[[], None]) -> Flow:
        """Puts *size_bytes* on *route*; *on_done* is called when the last one is through."""
        flow = Flow(route, size_bytes, on_done)
        alone = True
        for channel in flow.channels:
            alone = alone and not channel.flows
            channel.flows[flow] = None
        if alone:
            # An idle route needs no solver: the slowest channel decides.
            self._set_rate(flow, min([c.capacity_Bps for c in flow.channels], default=inf))
        else:
            self._share(flow.channels)
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
        busy = False
        for channel in flow.channels:
            channel.flows.pop(flow, None)
            busy = busy or bool(channel.flows)
        if busy:
            self._share(flow.channels)

    def _share(self, touched: tuple[Channel, ...]) -> None:
        """Gives every flow connected to *touched* its max-min rate."""
        flows, channels = _component(touched)
        index = {channel: i for i, channel in enumerate(channels)}
        rates = max_min_rates(
            [[index[channel] for channel in flow.channels] for flow in flows],
            [channel.capacity_Bps for channel in channels],
            [flow.bound_Bps for flow in flows],
        )
        for flow, rate in zip(flows, rates, strict=True):
            if rate != flow.rate_Bps:
                self._set_rate(flow, rate)

    def _set_rate(self, flow: Flow, rate_Bps: float) -> None:
        now = self._clock.now
        rate_Bps = min(rate_Bps, flow.bound_Bps)
        if flow.alarm is not None:
            flow.left_B = max(0.0, flow.left_B - flow.rate_Bps * (now - flow.since_s))
            flow.alarm.cancelled = True
        flow.rate_Bps, flow.since_s = rate_Bps, now
        flow.alarm = self._clock.alarm_at(now + flow.left_B / rate_Bps, lambda _: self._finish(flow))


def _component(touched: tuple[Channel, ...]) -> tuple[list[Flow], list[Channel]]:
    """All flows and channels connected to *touched* through shared channels, in order of discovery."""
    channels = dict.fromkeys(touched)
    flows: dict[Flow, None] = {}
    queue = list(touched)
    for channel in queue:
        for flow in channel.flows:
            if flow not in flows:
                flows[flow] = None
                for other in flow.channels:
                    if other not in channels:
                        channels[other] = None
                        queue.append(other)
    return list(flows), list(channels)
