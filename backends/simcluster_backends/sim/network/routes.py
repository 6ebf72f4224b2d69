"""The paths between the nodes of a topology: route, latency, and everything else that affects a message there.

Every direction of a link, and every pair of nodes, draws from a separately named random stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from math import fsum, log
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from simcluster.rng import numpy_stream
from simcluster.topology import Hop
from simcluster.topology.model.link import merged, stages
from simcluster_backends.sim.loop.clock import Clock
from simcluster_backends.sim.network.conditions import Conditions, conditions_of
from simcluster_backends.sim.network.cores import Cores, Overheads
from simcluster_backends.sim.network.fairshare import Demand
from simcluster_backends.sim.network.flows import FlowRoute, Network
from simcluster_backends.sim.network.losses import Losses, together
from simcluster_backends.sim.network.models import Channels, NetworkModel, Spoke
from simcluster_backends.sim.network.spokes import Spokes, spoke_links

if TYPE_CHECKING:
    import numpy as np

    from simcluster.topology import Link, Topology
    from simcluster.topology.model.conditions import Jitter
    from simcluster_backends.sim.network.fairshare import Channel


Draw: TypeAlias = Callable[[], float]
"""A function that draws the seconds, 0 or more, by which jitter on a link delays one message."""


class Way(NamedTuple):
    """Everything that affects messages from one node to another; None or () means no effect."""

    route: FlowRoute
    latency_s: float
    sender: Overheads | None = None
    receiver: Overheads | None = None
    jitters: tuple[Draw, ...] = ()
    losses: Losses | None = None
    conditions: Conditions | None = None
    extras: tuple[Callable[[float], float], ...] = ()
    """Functions from a time to the seconds by which a link's latency then exceeds its nominal one."""
    by_size: tuple[tuple[float, Way], ...] = ()  # (most bytes, way) if the size of a message decides

    def latency_at(self, time_s: float) -> float:
        """Return the latency at *time_s*, without jitter."""
        if not self.extras:  # nearly always; every message asks
            return self.latency_s
        return self.latency_s + sum(extra_s(time_s) for extra_s in self.extras)

    def of(self, size_bytes: float) -> tuple[int, Way]:
        """Return the number, in order of size, and the way of a message of *size_bytes*."""
        if not self.by_size:
            return 0, self
        return next((n, way) for n, (most_bytes, way) in enumerate(self.by_size) if size_bytes <= most_bytes)

    @property
    def is_plain(self) -> bool:
        """Whether only bandwidth and latency apply."""
        return self == Way(self.route, self.latency_s)


class ChannelRoutes:
    """The paths of *topology*, with their channels."""

    def __init__(self, topology: Topology, seed: int, clock: Clock, network: Network, model: NetworkModel) -> None:
        self.topology = topology
        self._seed = seed
        self._model = model
        self._channels = Channels(model, topology.machines)
        self._cores = {name: self._cores_of(name, network, it.wakeup_s) for name, it in topology.machines.items()}
        self._conditions = conditions_of(topology, seed, clock, network, model, self._channels)
        self._overheads = {
            node.name: Overheads(clock, node.send_overhead_s, node.recv_overhead_s, self.cores(node.name))
            for node in topology.nodes.values()
            if node.send_overhead_s or node.recv_overhead_s
        }
        self._draws: dict[tuple[str, bool], Draw] = {}
        self._lost: dict[tuple[str, str], np.random.Generator] = {}
        self._found: dict[str, Spoke] = {}  # by worker
        self.link_now: Callable[[Hop], Link] | None = None  # the current link, if faults change any
        self._draws_any = any(link.jitter or link.loss or link.latency_trace for link in topology.links)

    def way(self, source: str, target: str) -> Way:
        """Return the path from *source* to *target* in its current state under faults.

        If there are several, by the size of a message, it is the one of the smallest.
        """
        links = self._spoke_links
        if links and source in links and target in links and source != target and self.link_now is None:
            return Way(*self._model.over_hub(self._spoke(source), self._spoke(target)))
        routes = self.topology.routes(source, target)
        ways = [(most_bytes, self._way(source, target, self._current(hops))) for most_bytes, hops in routes]
        return ways[0][1] if len(ways) == 1 else ways[0][1]._replace(by_size=tuple(ways))

    def _way(self, source: str, target: str, hops: Sequence[Hop]) -> Way:
        ends = [self.topology.nodes[name] for name in (source, target)]
        route, latency_s = self._model.lay(hops, self._channels, ends)
        sender, receiver = self._overheads.get(source), self._overheads.get(target)
        if not self._draws_any and self.link_now is None:
            return Way(route, latency_s, sender, receiver, (), None, self._conditions)
        jitters = tuple(self._last(one) for one in stages(hops) if any(hop.link.jitter is not None for hop in one))
        losses = self._losses(source, target, hops)
        return Way(route, latency_s, sender, receiver, jitters, losses, self._conditions, self._extras(hops))

    def latency_s(self, source: str, target: str, time_s: float) -> float:
        """Return the latency of the `way` from *source* to *target* at *time_s*."""
        hops = self._current(self.topology.over_one_node(source, target) or self.topology.route(source, target))
        found_s = self._model.latency_of(merged(hops))
        return found_s + sum(extra_s(time_s) for extra_s in self._extras(hops))

    def _extras(self, hops: Sequence[Hop]) -> tuple[Callable[[float], float], ...]:
        changing = [parts for parts in stages(hops) if any(hop.link.latency_trace is not None for hop in parts)]
        return tuple(partial(_later_s, self._model.latency_factor, [hop.link for hop in one]) for one in changing)

    def _current(self, hops: Sequence[Hop]) -> Sequence[Hop]:
        """Return *hops* in their current state under faults."""
        if self.link_now is None:
            return hops
        return [hop._replace(link=self.link_now(hop)) for hop in hops]

    @cached_property
    def _spoke_links(self) -> dict[str, Link] | None:
        return spoke_links(self.topology)

    def _spoke(self, name: str) -> Spoke:
        """Return the spoke of worker *name* of a star, from a cache, as making one takes longer."""
        spoke = self._found.get(name)
        if spoke is None:
            assert self._spoke_links is not None
            link = self._spoke_links[name]
            forward = link.a == name
            channels = self._channels.of(link, forward), self._channels.of(link, not forward)
            spoke = self._found[name] = Spoke(link, *channels)
        return spoke

    @cached_property
    def _spokes(self) -> Spokes | None:
        if self._spoke_links is None:
            return None
        return Spokes(self._model, [self._spoke(name) for name in self.topology.workers])

    def demand(self, source: str, target: str, rate_Bps: float) -> Demand:
        """Return a demand for at most *rate_Bps* on the path from *source* to *target*."""
        route, _ = self._model.lay(self._current(self.topology.route(source, target)), self._channels)
        return Demand(route.uses, min(route.bound_Bps, rate_Bps), route.weight)

    @property
    def spokes(self) -> Spokes | None:
        """The paths of a star of plain links; None for another topology, or if faults may change a link."""
        return self._spokes if self.link_now is None else None

    def cores(self, name: str) -> Cores | None:
        """Return the cores that node *name* shares with others, if any."""
        machine = self.topology.nodes[name].machine
        return None if machine is None else self._cores[machine]

    def _cores_of(self, machine: str, network: Network, wakeup_s: float) -> Cores:
        nodes = self.topology.nodes
        inner = [link for link in self.topology.links if nodes[link.a].machine == nodes[link.b].machine == machine]
        # Without inner links only threads use the cores, so any weight shares them equally.
        fastest_Bps = max((link.bandwidth_Bps for link in inner), default=1.0)
        return Cores(network, self._channels.cores(machine), 1.0 / fastest_Bps, wakeup_s)

    def channels(self, link: Link, towards: str | None) -> list[Channel]:
        """Return the channels of *link* in both directions, or only *towards* one end.

        Return [] if flows do not share the link.
        """
        if link.duplex == "free":
            return []
        forwards = [forward for forward in (True, False) if towards in (None, link.b if forward else link.a)]
        return list(dict.fromkeys(self._channels.of(link, forward) for forward in forwards))

    def _last(self, parts: Sequence[Hop]) -> Draw:
        """Return the delay of the last part of a message, after the highest latency of *parts*."""
        if len(parts) == 1:
            return self._draw(parts[0])
        longest_s = max(hop.link.latency_s for hop in parts)
        draws = [(hop.link.latency_s, self._draw(hop) if hop.link.jitter else lambda: 0.0) for hop in parts]
        return lambda: max(latency_s + draw_s() for latency_s, draw_s in draws) - longest_s

    def _draw(self, hop: Hop) -> Draw:
        """Return the jitter of one direction of a link: all messages that cross it draw from one random stream."""
        key = (hop.link.name, hop.forward)
        if key not in self._draws:
            assert hop.link.jitter is not None
            random = numpy_stream(self._seed, "jitter", hop.link.name, hop.source)
            self._draws[key] = _draws_of(hop.link.jitter, random)
        return self._draws[key]

    def _losses(self, source: str, target: str, hops: Sequence[Hop]) -> Losses | None:
        links = merged(hops)
        losses = [link.loss for link in links if link.loss]
        if not losses:
            return None
        round_trip_s = 2.0 * fsum(link.latency_s for link in links)
        # A path that is rebuilt continues its random stream.
        random = self._lost.setdefault((source, target), numpy_stream(self._seed, "loss", source, target))
        return Losses(together(losses), round_trip_s, random)


def _later_s(factor: float, links: Sequence[Link], time_s: float) -> float:
    """Return the extra latency at *time_s* of *links*, over which one message is striped, or of the only one."""
    traces = [(link.latency_s, link.latency_trace) for link in links]
    now_s = max(latency_s + (trace.extra_s(time_s) if trace is not None else 0.0) for latency_s, trace in traces)
    return factor * (now_s - max(link.latency_s for link in links))


def _draws_of(jitter: Jitter, random: np.random.Generator) -> Draw:
    mean_s = jitter.mean_s
    if jitter.kind == "uniform":
        return lambda: float(random.uniform(0.0, 2.0 * mean_s))
    if jitter.kind == "lognormal":
        # exp of a normal of mean mu has the mean exp(mu + sigma^2 / 2).
        location = log(mean_s) - jitter.sigma**2 / 2
        return lambda: float(random.lognormal(location, jitter.sigma))
    return lambda: float(random.exponential(mean_s))
