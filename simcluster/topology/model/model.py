"""A topology: nodes with devices, and the links between them. All of it frozen."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

import networkx

from simcluster.errors import nearest
from simcluster.topology.model.conditions import Background, BackgroundFlow, Jitter, RateTrace
from simcluster.topology.model.device import Device
from simcluster.topology.model.routing import Routes
from simcluster.topology.model.spread import NONE, Factors, Spread
from simcluster.units import format_bandwidth, format_latency

Duplex: TypeAlias = Literal["full", "half", "free"]
NetworkKind: TypeAlias = Literal["maxmin", "lv08"]
Routing: TypeAlias = Literal["shortest", "ecmp"]


@dataclass(frozen=True)
class Node:
    """A worker (it has a device and a rank), or a switch or bare host (they have neither).

    A node that is no *gateway* forwards nothing for others. *address*, *port* and *ssh* are for the real node,
    *command* what starts simcluster there, *processes* how many times. *send_overhead_s* and *recv_overhead_s* are what
    a message takes of it, one after another;
    *host_bandwidth_Bps* is what it can send and receive together, over however many links. *send_buffer_bytes* to each
    peer are taken off its hands before they have left it, so that a `send` of so much returns at once.
    """

    name: str
    device: Device | None = None
    address: str | None = None
    port: int | None = None
    ssh: str | None = None
    site: str | None = None
    gateway: bool = True
    is_host: bool = False
    send_overhead_s: float = 0.0
    recv_overhead_s: float = 0.0
    host_bandwidth_Bps: float = math.inf
    send_buffer_bytes: int = 0
    command: tuple[str, ...] = ()
    processes: int | None = None
    spread: Spread = NONE

    @property
    def is_worker(self) -> bool:
        return self.device is not None

    @property
    def kind(self) -> Literal["worker", "host", "switch"]:
        return "worker" if self.is_worker else "host" if self.is_host else "switch"


@dataclass(frozen=True)
class Link:
    """A link between nodes *a* and *b*, in the order of the file; *latency_s* is one way.

    full: *bandwidth_Bps* each way; half: both ways share it; free: every flow has all of it. *ack_share* is what a flow
    takes of the way back, for acknowledgements, as a share of what it takes of the way there. *loss* is the share of
    packets that do not arrive, each way. Links of one *medium* share its time on air, each at its own bandwidth.
    """

    a: str
    b: str
    bandwidth_Bps: float
    latency_s: float
    duplex: Duplex = "full"
    type: str | None = None
    source: str = ""
    ack_share: float = 0.0
    jitter: Jitter | None = None
    loss: float = 0.0
    trace: RateTrace | None = None
    background: Background | None = None
    medium: str | None = None
    spread: Spread = NONE

    @property
    def name(self) -> str:
        return f"{self.a}-{self.b}"

    def __str__(self) -> str:
        """The numbers, for people: 1 Gbps, 150 us, full."""
        return link_numbers(self.bandwidth_Bps, self.latency_s, self.duplex)

    @property
    def conditions(self) -> list[str]:
        """What makes it less than its numbers, for people."""
        words = [f"on the medium {self.medium}"] if self.medium else []
        words += [f"acknowledgements take {self.ack_share:.2g} of the way back"] if self.ack_share else []
        words += [f"{self.loss:g} of packets lost"] if self.loss else []
        words += [str(part) for part in (self.jitter, self.trace) if part is not None]
        return words + ([f"background {self.background}"] if self.background else [])


def link_numbers(bandwidth_Bps: float, latency_s: float, duplex: str) -> str:
    """1 Gbps, 150 us, full."""
    return f"{format_bandwidth(bandwidth_Bps)}, {format_latency(latency_s)}, {duplex}"


class Hop(NamedTuple):
    """One link of a route, taken from a to b if *forward*, else from b to a."""

    link: Link
    forward: bool

    @property
    def source(self) -> str:
        return self.link.a if self.forward else self.link.b

    @property
    def target(self) -> str:
        return self.link.b if self.forward else self.link.a


@dataclass(frozen=True)
class Topology:
    """A checked cluster: `simcluster.topology.load` makes it. *nodes* is in the order of the file.

    *network* is the model of the network that a simulation uses. *paths* are routes that the file lays itself, names
    from end to end; the other routes are found as *routing* says. *inbox_bytes* is what a node takes in of one peer
    unasked; None for what a backend takes by itself, 0 for nothing: a message then waits until it is asked for.
    *misfit* is by which factor a rehearsed step took longer than these numbers say, in each round of a calibration,
    *startup_s* by how much longer messages took over connections that had been idle, as once in a run.

    *document* is the plain dict it was read from, overrides included; `loads` reads it back to an equal
    Topology.
    """

    name: str
    nodes: Mapping[str, Node]
    links: tuple[Link, ...]
    description: str = ""
    network: NetworkKind = "maxmin"
    routing: Routing = "shortest"
    paths: tuple[tuple[str, ...], ...] = ()
    background: tuple[BackgroundFlow, ...] = ()
    inbox_bytes: int | None = None
    misfit: Factors = ()
    startup_s: Factors = ()
    document: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __eq__(self, other: object) -> bool:
        # Mappings compare without order, but the order of the nodes is that of the ranks.
        return isinstance(other, Topology) and self._facts == other._facts

    def __hash__(self) -> int:
        return hash(self._facts)

    @property
    def _facts(self) -> tuple[Any, ...]:
        settings = (
            self.network,
            self.routing,
            self.paths,
            self.background,
            self.inbox_bytes,
            self.misfit,
            self.startup_s,
        )
        return (self.name, self.description, tuple(self.nodes.values()), self.links, settings)

    @cached_property
    def workers(self) -> list[str]:
        """Names of the nodes that compute; the index is the rank."""
        return [node.name for node in self.nodes.values() if node.is_worker]

    @cached_property
    def graph(self) -> networkx.Graph[str]:
        """The cluster as a networkx graph: node attribute `node`, edge attribute `link`."""
        graph: networkx.Graph[str] = networkx.Graph(name=self.name)
        for node in self.nodes.values():
            graph.add_node(node.name, node=node)
        for link in self.links:
            graph.add_edge(link.a, link.b, link=link)
        return graph

    def route(self, a: str, b: str) -> tuple[Hop, ...]:
        """The links from *a* to *b*: one of *paths*, or those over which a packet of 1500 bytes would be there first.

        Of equally fast ones that with fewer hops, then that through nodes earlier in the file, or with ecmp one that
        the names of both ends decide. The way back is the way there reversed. Computed when first asked for and kept.
        Raises ValueError for names it does not know, or two nodes (one of them a switch, or `load` would have refused)
        without a way between them.
        """
        key = (a, b)
        if key not in self._routes:
            self._routes[key] = self._find_route(a, b)
        return self._routes[key]

    def _find_route(self, a: str, b: str) -> tuple[Hop, ...]:
        for name in (a, b):
            if name not in self.nodes:
                raise ValueError(f"topology {self.name} has no node {name!r}: {nearest(name, self.nodes)}")
        path = self._laid.get((a, b)) or self._routing.path(a, b)
        if path is None:
            raise ValueError(f"topology {self.name} has no way from {a} to {b}")
        steps = [(self._pairs[pair], pair[0]) for pair in itertools.pairwise(path)]
        return tuple(Hop(link, link.a == source) for link, source in steps)

    def route_latency_s(self, a: str, b: str) -> float:
        """One-way latency from *a* to *b*, the same both ways to the bit."""
        return math.fsum(hop.link.latency_s for hop in self.route(a, b))

    def route_bandwidth_Bps(self, a: str, b: str) -> float:
        """Bandwidth of the slowest link from *a* to *b*; infinite from a node to itself."""
        return min((hop.link.bandwidth_Bps for hop in self.route(a, b)), default=math.inf)

    @cached_property
    def _routes(self) -> dict[tuple[str, str], tuple[Hop, ...]]:
        return {}

    @cached_property
    def _laid(self) -> dict[tuple[str, str], Sequence[str]]:
        """The paths of the file, in both directions."""
        return {(way[0], way[-1]): way for path in self.paths for way in (path, path[::-1])}

    @cached_property
    def _routing(self) -> Routes:
        return Routes(
            list(self.nodes),
            [(link.a, link.b, link.latency_s, link.bandwidth_Bps) for link in self.links],
            frozenset(node.name for node in self.nodes.values() if node.gateway),
            spread=self.routing == "ecmp",
        )

    @cached_property
    def _pairs(self) -> dict[tuple[str, str], Link]:
        return {pair: link for link in self.links for pair in ((link.a, link.b), (link.b, link.a))}
