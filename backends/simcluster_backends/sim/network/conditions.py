"""Links with changing bandwidth, and background traffic that comes and goes.

Changes never end, but only flows notice them. Without flows nothing is scheduled: a deadlock is still detected, and a
sleep of a year is not stepped through change by change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from simcluster.rng import numpy_stream
from simcluster.topology import Hop
from simcluster_backends.sim.devices import FORGOTTEN_CYCLES, in_turn
from simcluster_backends.sim.loop.clock import Clock, Endless
from simcluster_backends.sim.network.fairshare import Demand

if TYPE_CHECKING:
    import numpy as np

    from simcluster.topology import Topology
    from simcluster.topology.model.conditions import Background, RateTrace
    from simcluster_backends.sim.network.flows import FlowRoute, Network
    from simcluster_backends.sim.network.models import Channels, NetworkModel

TURNS_LIMIT = 1_000_000
"""The number of changes after which a run counts as endless, if no flow has ended meanwhile."""


class ChangingQuantity:
    """A quantity that changes at given times, whether or not it is observed.

    *steps_from(time)* yields (start, value): the first value applies at *time*, the last one of a
    finite sequence forever. *put(value)* applies a value. After *forgotten_s* without `catch_up`,
    *steps_from* is called again, which skips the changes that nothing observed.
    """

    def __init__(
        self,
        steps_from: Callable[[float], Iterator[tuple[float, float]]],
        put: Callable[[float], object],
        forgotten_s: float = math.inf,
    ) -> None:
        self._steps_from = steps_from
        self._put = put
        self._forgotten_s = forgotten_s
        self._steps = steps_from(0.0)
        self._next: tuple[float, float] | None = next(self._steps)

    def catch_up(self, now_s: float) -> float:
        """Apply the value at *now_s*; return the time of its next change, inf if there is none."""
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

    def __init__(self, clock: Clock, changing: Iterable[ChangingQuantity]) -> None:
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

    def _go_on(self, changing: ChangingQuantity) -> None:
        next_s = changing.catch_up(self._clock.now_s)
        if next_s < math.inf:
            self._clock.alarm_at(next_s, self._turn, changing)

    def _turn(self, changing: ChangingQuantity) -> None:
        if not self._flows:
            # Without flows nothing observes the quantity: the next `enter` catches up.
            self._asleep.append(changing)
            return
        self._turns += 1
        if self._turns > TURNS_LIMIT:
            raise Endless
        self._go_on(changing)


def conditions_of(
    topology: Topology, seed: int, clock: Clock, network: Network, model: NetworkModel, channels: Channels
) -> Conditions | None:
    """Start permanent traffic; return the conditions of *topology*, None if they never change."""
    changing = []
    for link in topology.links:
        if link.trace is not None:
            for channel in dict.fromkeys((channels.of(link, True), channels.of(link, False))):
                steps_from = partial(rates, link.trace, factor=model.bandwidth_factor)
                # A trace repeats, so after two idle periods it can start again in the current one.
                changing.append(ChangingQuantity(steps_from, partial(network.change, channel), 2 * link.trace.period_s))
    for names, route, traffic in _backgrounds(topology, model, channels):
        demand = Demand(route.uses, min(route.bound_Bps, traffic.rate_Bps), route.weight)
        if traffic.comes_and_goes:
            changing.append(_traffic(network, demand, traffic, numpy_stream(seed, "background", *names)))
        else:
            network.join(demand)
    return Conditions(clock, changing) if changing else None


def rates(trace: RateTrace, from_s: float, factor: float = 1.0) -> Iterator[tuple[float, float]]:
    """Yield (start, rate times *factor*) of *trace*, from the period that contains *from_s* on."""
    starts_s: Iterable[float] = (0.0,)
    if not math.isinf(trace.period_s):
        starts_s = (period * trace.period_s for period in count(math.floor(from_s / trace.period_s)))
    for start_s in starts_s:
        for at_s, rate_Bps in trace.steps:
            yield start_s + at_s, factor * rate_Bps


def _backgrounds(
    topology: Topology, model: NetworkModel, channels: Channels
) -> Iterator[tuple[tuple[str, ...], FlowRoute, Background]]:
    """Yield (names of its random stream, route, traffic) of each background flow.

    Those of links come first, one per direction, and then those between two nodes."""
    for link in topology.links:
        if link.background is not None:
            for forward in (True,) if link.duplex == "half" else (True, False):
                hop = Hop(link, forward)
                yield (link.name, hop.source), model.lay([hop], channels)[0], link.background
    for number, flow in enumerate(topology.background):
        hops = topology.route(flow.source, flow.target)
        yield (flow.source, flow.target, str(number)), model.lay(hops, channels)[0], flow.traffic


def _traffic(network: Network, demand: Demand, traffic: Background, random: np.random.Generator) -> ChangingQuantity:
    on = False

    def put(value: float) -> None:
        nonlocal on
        if bool(value) != on:
            on = bool(value)
            (network.join if on else network.leave)(demand)

    forgotten_s = FORGOTTEN_CYCLES * (traffic.on_s + traffic.off_s)
    return ChangingQuantity(partial(in_turn, random, (traffic.on_s, 1.0), (traffic.off_s, 0.0)), put, forgotten_s)
