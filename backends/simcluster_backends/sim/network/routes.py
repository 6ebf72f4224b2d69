"""The paths between the nodes of a topology: route, latency, and everything else that affects a message there.

Every direction of a link, and every pair of nodes, draws from a separately named random stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from math import fsum, log
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from simcluster.rng import numpy_stream
from simcluster.topology import Hop
from simcluster_backends.sim.loop.clock import Clock
from simcluster_backends.sim.network.conditions import Conditions, conditions_of
from simcluster_backends.sim.network.cores import Cores, Overheads
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
"""Draws the seconds, 0 or more, that jitter adds to a link's latency: one draw per message."""


class Way(NamedTuple):
    """Everything that affects messages from one node to another; None and () for what is absent."""

    route: FlowRoute
    latency_s: float
    sender: Overheads | None = None
    receiver: Overheads | None = None
    jitters: tuple[Draw, ...] = ()
    losses: Losses | None = None
    conditions: Conditions | None = None

    @property
    def is_plain(self) -> bool:
        """Whether only bandwidth and latency apply."""
        return self == Way(self.route, self.latency_s)


class ChannelRoutes:
    """The paths of *topology*, with their channels."""

    def __init__(self, topology: Topology, seed: int, clock: Clock, network: Network, model: NetworkModel) -> None:
        self.topology, self._seed, self._model = topology, seed, model
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
        self.link_now: Callable[[Hop], Link] | None = None  # its current state, if faults may change it
        self._draws_any = any(link.jitter is not None or link.loss for link in topology.links)

    def way(self, source: str, target: str) -> Way:
        """Return the path from *source* to *target* in its current state under faults."""
        links = self._spoke_links
        if links and source in links and target in links and source != target and self.link_now is None:
            return Way(*self._model.over_hub(self._spoke(source), self._spoke(target)))
        hops = self._current(self.topology.route(source, target))
        ends = [self.topology.nodes[name] for name in (source, target)]
        route, latency_s = self._model.lay(hops, self._channels, ends)
        sender, receiver = self._overheads.get(source), self._overheads.get(target)
        if not self._draws_any and self.link_now is None:
            return Way(route, latency_s, sender, receiver, (), None, self._conditions)
        jitters = tuple(self._draw(hop) for hop in hops if hop.link.jitter is not None)
        losses = self._losses(source, target, hops)
        return Way(route, latency_s, sender, receiver, jitters, losses, self._conditions)

    def latency_s(self, source: str, target: str) -> float:
        """Return the latency of the `way` from *source* to *target*."""
        hops = self.topology.over_one_node(source, target) or self.topology.route(source, target)
        return self._model.latency_of([hop.link for hop in self._current(hops)])

    def _current(self, hops: Sequence[Hop]) -> Sequence[Hop]:
        """Return *hops* in their current state under faults."""
        if self.link_now is None:
            return hops
        return [Hop(self.link_now(hop), hop.forward) for hop in hops]

    @cached_property
    def _spoke_links(self) -> dict[str, Link] | None:
        return spoke_links(self.topology)

    def _spoke(self, name: str) -> Spoke:
        """Return the spoke of worker *name* of a star: found for each once, since searching takes longer."""
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
        fastest_Bps = max((link.bandwidth_Bps for link in inner), default=1.0)
        return Cores(network, self._channels.cores(machine), 1.0 / fastest_Bps, wakeup_s)

    def channels(self, link: Link, towards: str | None) -> list[Channel]:
        """Return the channels of *link* in both directions, or *towards* one end; none if flows do not share it."""
        if link.duplex == "free":
            return []
        forwards = [forward for forward in (True, False) if towards in (None, link.b if forward else link.a)]
        return list(dict.fromkeys(self._channels.of(link, forward) for forward in forwards))

    def _draw(self, hop: Hop) -> Draw:
        """Return the jitter of one direction of a link: all messages that cross it draw from one random stream."""
        key = (hop.link.name, hop.forward)
        if key not in self._draws:
            assert hop.link.jitter is not None
            random = numpy_stream(self._seed, "jitter", hop.link.name, hop.source)
            self._draws[key] = _draws_of(hop.link.jitter, random)
        return self._draws[key]

    def _losses(self, source: str, target: str, hops: Sequence[Hop]) -> Losses | None:
        losses = [hop.link.loss for hop in hops if hop.link.loss]
        if not losses:
            return None
        round_trip_s = 2.0 * fsum(hop.link.latency_s for hop in hops)
        # A rebuilt path continues its draws.
        random = self._lost.setdefault((source, target), numpy_stream(self._seed, "loss", source, target))
        return Losses(together(losses), round_trip_s, random)


def _draws_of(jitter: Jitter, random: np.random.Generator) -> Draw:
    mean_s = jitter.mean_s
    if jitter.kind == "uniform":
        return lambda: float(random.uniform(0.0, 2.0 * mean_s))
    if jitter.kind == "lognormal":
        # exp of a normal of mean mu has the mean exp(mu + sigma^2 / 2).
        location = log(mean_s) - jitter.sigma**2 / 2
        return lambda: float(random.lognormal(location, jitter.sigma))
    return lambda: float(random.exponential(mean_s))
