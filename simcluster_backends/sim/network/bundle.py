"""Equal flows that begin at one instant on one channel, alone on all others: one end is computed for all of them.

Workers that push to their server are the usual case. The end has the bits of fairshare.py and service.py, which also
order the flows. As soon as anything else happens in the network, the flows are put into it as of the instant at which
they began: so no other part has to know of them.
"""

from __future__ import annotations

from heapq import heappush
from math import inf
from typing import Any, Protocol

from simcluster_backends.sim.loop.clock import Alarm, Clock
from simcluster_backends.sim.network.channels import Channel
from simcluster_backends.sim.network.fairshare import FairShare
from simcluster_backends.sim.network.flow import Flow
from simcluster_backends.sim.network.service import Service

ROUNDING = 1.0 + 1e-9
"""A limit that is no further above the common level than this may come into play by rounding."""


class Host(Protocol):
    """The network of a bundle: see flows.py."""

    clock: Clock
    fair: FairShare
    bundle: Bundle | None

    def service(self, channel: Channel) -> Service: ...

    def settle_at(self, now: float) -> None: ...

    def finish_first(self, service: Service) -> None: ...

    def pass_over(self, service: Service, flow: Flow) -> None: ...

    def note_end(self, first: Flow, shared: Channel, level: float, service: Service) -> None: ...


class Bundle:
    """Flows of *network*: *first*, which began now in an empty network, and those like it that have followed."""

    def __init__(self, network: Host, first: Flow) -> None:
        self.network, self.flows = network, [first]
        self._first, self._since_s = first, network.clock._now
        self._uses = dict(first.uses)  # of all flows
        self._shared: Channel | None = None
        self._limit = inf  # the lowest of all flows, as a level, without the shared channel
        self._alarm: Alarm | None = None  # once their end is known
        self._at = 0.0  # the end, as the service counts
        self._service: Service
        self._before = (0.0, 0.0, 0.0)  # of the service
        self._level = 0.0
        self._gone = 0

    def takes(self, flow: Flow) -> bool:
        """Add *flow* if it begins now as well, is like the others, and shares the same one channel with each."""
        first, uses, shared = self._first, self._uses, None
        is_alike = flow.left_B == first.left_B and flow.weight == first.weight and type(flow) is type(first)
        if not is_alike or self._alarm is not None or self.network.clock._now != self._since_s:
            return False
        limit_Bps = flow.bound_Bps
        for channel, use in flow.uses:
            if channel not in uses:
                if channel.capacity_Bps < limit_Bps * use:
                    limit_Bps = channel.capacity_Bps / use
            elif shared is None and channel is (self._shared or channel) and use == uses[channel]:
                shared = channel
            else:
                return False
        if shared is None:
            return False
        if self._shared is None:
            self._shared = shared
            self._limit = first.limit_now(without=shared) / first.weight
        self._limit = min(self._limit, limit_Bps / flow.weight)
        uses.update(flow.uses)
        self.flows.append(flow)
        return True

    def settle(self) -> bool:
        """Find the end of all flows; return False if it is not the same, or not sure to be."""
        shared, first, network = self._shared, self._first, self.network
        assert shared is not None
        load, share = 0.0, first.weight * self._uses[shared]
        for _ in self.flows:
            load += share
        self._level = level = shared.capacity_Bps / load
        if not 0.0 < level * ROUNDING < self._limit:
            return False
        if first.alarm is not None:
            first.alarm.cancelled, first.alarm = True, None
        self._service = service = network.service(shared)
        self._before = service.virtual, service.since_s, service.pace
        service.run(self._since_s, level)
        at = service.virtual + first.left_B / first.weight
        end_s = service.since_s + (at - service.virtual) / service.pace
        self._alarm = network.clock.alarm_at(end_s, self._finish, self)
        self._at = at
        return True

    def _finish(self, _: object) -> None:
        """Let the flows end one after the other: what comes of each happens before the next ends."""
        network, clock = self.network, self.network.clock
        while True:
            flow = self.flows[self._gone]
            self._gone += 1
            if self._gone == len(self.flows):
                self._end()
                flow.on_done()
                return
            number = next(clock._eid)
            self._alarm = alarm = Alarm(self._finish, self)
            flow.on_done()
            if clock.comes_before(number) or network.bundle is not self:
                queue: list[Any] = clock._queue
                heappush(queue, (clock._now, 1, number, alarm))
                return

    def _end(self) -> None:
        """Leave the network as the last of the flows would."""
        network, service, shared = self.network, self._service, self._shared
        assert shared is not None
        network.bundle = None
        service.pass_over(self._at, network.clock._now, len(self.flows))
        network.note_end(self._first, shared, self._level, service)

    def open(self) -> None:
        """Put the flows into the network, as if each had been from the start."""
        network = self.network
        for flow in self.flows[1:]:
            network.fair.join(flow)
        if self._alarm is None:
            return  # they are settled at the end of this instant
        service = self._service
        service.virtual, service.since_s, service.pace = self._before
        network.settle_at(self._since_s)
        assert service.alarm is not None
        service.alarm.cancelled = True
        self._alarm.callback, self._alarm.argument = network.finish_first, service
        service.alarm = self._alarm
        for flow in self.flows[: self._gone]:
            network.pass_over(service, flow)
