"""Links with changing bandwidth, and background traffic that comes and goes.

Changes never end, but only flows notice them. Without flows nothing is scheduled: a deadlock is still detected, and a
sleep of a year is not stepped through change by change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from simcluster.rng import numpy_stream
from simcluster_backends.sim.loop.clock import Clock
from simcluster_backends.sim.loop.event_loop import Endless
from simcluster_backends.sim.network.fairshare import Demand

if TYPE_CHECKING:
    import numpy as np

    from simcluster.topology import Link, Topology
    from simcluster.topology.model.conditions import Background, RateTrace
    from simcluster_backends.sim.network.flows import Network, Route
    from simcluster_backends.sim.network.models import Channels, NetworkModel

TURNS_LIMIT = 1_000_000
"""Changes in a row, without the end of any flow, after which a run is declared endless."""

FORGOTTEN_CYCLES = 10_000
"""After this many on-off cycles, less than exp(-40,000) remains of the traffic's earlier state."""


class Changing:
    """A quantity that changes at given times, whether or not it is observed.

    *steps_from(time)* yields (start, value), the first holding at *time*; the last of a finite sequence holds forever.
    *put(value)* applies a value. If not observed for *forgotten_s*, the steps are requested again.
    """

    def __init__(
        self,
        steps_from: Callable[[float], Iterator[tuple[float, float]]],
        put: Callable[[float], object],
        forgotten_s: float = math.inf,
    ) -> None:
        self._steps_from, self._put, self._forgotten_s = steps_from, put, forgotten_s
        self._steps = steps_from(0.0)
        self._next: tuple[float, float] | None = next(self._steps)

    def catch_up(self, now_s: float) -> float:
        """Apply the value at *now_s*; return when it changes next, inf for never."""
        if self._next is not None and now_s - self._next[0] > self._forgotten_s:
            self._steps = self._steps_from(now_s)
            self._next = next(self._steps)
        value = None
        while self._next is not None and self._next[0] <= now_s:
            value = self._next[1]
            self._next = next(self._steps, None)
        if value is not None:
            self._put(value)
        return math.inf if self._next is None else self._next[0]


class Conditions:
    """Everything that changes on one network. Flows call `enter` and `leave`."""

    def __init__(self, clock: Clock, changing: Iterable[Changing]) -> None:
        self._clock = clock
        self._asleep = list(changing)
        self._flows = self._turns = 0

    def enter(self) -> None:
        """Count a flow that is about to start."""
        self._flows += 1
        if self._asleep:
            awake, self._asleep = self._asleep, []
            for changing in awake:
                self._go_on(changing)

    def leave(self) -> None:
        """Uncount a flow that has ended or been cancelled."""
        self._flows -= 1
        self._turns = 0

    def _go_on(self, changing: Changing) -> None:
        next_s = changing.catch_up(self._clock._now)
        if next_s < math.inf:
            self._clock.alarm_at(next_s, self._turn, changing)

    def _turn(self, changing: Changing) -> None:
        if not self._flows:
            self._asleep.append(changing)
            return
        self._turns += 1
        if self._turns > TURNS_LIMIT:
            raise Endless
        self._go_on(changing)


def conditions_of(
    topology: Topology, seed: int, clock: Clock, network: Network, model: NetworkModel, channels: Channels
) -> Conditions | None:
    """Return the conditions of *topology*, None if they never change. Permanent traffic starts now."""
    changing = [
        trace
        for link in topology.links
        if link.trace is not None
        for trace in _traces(link, link.trace, network, model, channels)
    ]
    for names, route, traffic in _backgrounds(topology, model, channels):
        route.bound_Bps = min(route.bound_Bps, traffic.rate_Bps)
        if traffic.comes_and_goes:
            changing.append(_traffic(network, route, traffic, numpy_stream(seed, "background", *names)))
        else:
            network.join(_demand(route))
    return Conditions(clock, changing) if changing else None


def _traces(
    link: Link, trace: RateTrace, network: Network, model: NetworkModel, channels: Channels
) -> Iterator[Changing]:
    for channel in {id(channel): channel for channel in (channels.of(link, True), channels.of(link, False))}.values():
        yield Changing(
            lambda from_s: rates(trace, from_s),
            lambda rate_Bps, channel=channel: network.change(channel, model.bandwidth_factor * rate_Bps),  # type: ignore[misc]
            2 * trace.period_s,
        )


def rates(trace: RateTrace, from_s: float) -> Iterator[tuple[float, float]]:
    """Yield the steps of *trace*, beginning with the period that contains *from_s*."""
    if math.isinf(trace.period_s):
        yield from trace.steps
        return
    period = math.floor(from_s / trace.period_s)
    while True:
        for at_s, rate_Bps in trace.steps:
            yield period * trace.period_s + at_s, rate_Bps
        period += 1


def _backgrounds(
    topology: Topology, model: NetworkModel, channels: Channels
) -> Iterator[tuple[tuple[str, ...], Route, Background]]:
    """Yield (stream names, route, traffic) of each background: first of links, per direction, then of node pairs."""
    from simcluster.topology import Hop

    for link in topology.links:
        if link.background is not None:
            for forward in (True,) if link.duplex == "half" else (True, False):
                hop = Hop(link, forward)
                yield (link.name, hop.source), model.lay([hop], channels)[0], link.background
    for number, flow in enumerate(topology.background):
        hops = topology.route(flow.source, flow.target)
        yield (flow.source, flow.target, str(number)), model.lay(hops, channels)[0], flow.traffic


def _demand(route: Route) -> Demand:
    return Demand(route.uses, route.bound_Bps, route.weight)


def _traffic(network: Network, route: Route, traffic: Background, random: np.random.Generator) -> Changing:
    demand = _demand(route)
    on = False

    def put(value: float) -> None:
        nonlocal on
        if bool(value) != on:
            on = bool(value)
            (network.join if on else network.leave)(demand)

    forgotten_s = FORGOTTEN_CYCLES * (traffic.on_s + traffic.off_s)
    return Changing(lambda from_s: _comes_and_goes(traffic, random, from_s), put, forgotten_s)


def _comes_and_goes(traffic: Background, random: np.random.Generator, from_s: float) -> Iterator[tuple[float, float]]:
    """Yield on (1) and off (0) in turn, for exponential times; the first is on with the stationary probability."""
    on, at_s = bool(random.random() < traffic.on_s / (traffic.on_s + traffic.off_s)), from_s
    while True:
        yield at_s, float(on)
        at_s += float(random.exponential(traffic.on_s if on else traffic.off_s))
        on = not on
