"""A topology: nodes with devices, and the links between them. All frozen."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias

import networkx

from simcluster.errors import nearest
from simcluster.topology.model.compute import CPU, Machine
from simcluster.topology.model.conditions import Background, BackgroundFlow, Jitter, RateTrace
from simcluster.topology.model.device import Device
from simcluster.topology.model.routing import Routes
from simcluster.topology.model.spread import NONE, Factors, Spread
from simcluster.units import format_bandwidth, format_latency

Duplex: TypeAlias = Literal["full", "half", "free"]
NetworkKind: TypeAlias = Literal["maxmin", "lv08"]
Routing: TypeAlias = Literal["shortest", "ecmp"]


@dataclass(frozen=True, slots=True)
class Node:
    """A worker (with a device and a rank), or a switch or bare host (without).

    A node that is not a *gateway* forwards nothing. *address*, *port* and *ssh* belong to the real node; *command*
    starts simcluster there, *processes* times. *send_overhead_s* and *recv_overhead_s* occupy the node per message, one
    message after another. *host_bandwidth_Bps* limits the sum of its sending and receiving, over all links.
    *send_buffer_bytes*: per peer, a `send` of up to this size returns at once, before it has left. Nodes of one
    *machine* share its cores. *compute* is what was asked for, such as "cuda:1" or "auto".
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
    machine: str | None = None
    spread: Spread = NONE
    compute: str = CPU

    @property
    def is_worker(self) -> bool:
        return self.device is not None

    @property
    def kind(self) -> Literal["worker", "host", "switch"]:
        return "worker" if self.is_worker else "host" if self.is_host else "switch"


@dataclass(frozen=True, slots=True)
class Link:
    """A link between nodes *a* and *b*, in the order of the file; *latency_s* is one way.

    full: *bandwidth_Bps* in each direction; half: both directions share it; free: every flow gets all of it.
    *ack_share*: a flow's acknowledgements occupy the reverse direction by this share of its rate. *loss*: the share of
    packets dropped, in each direction. Links on one *medium* share its air time, each at its own bandwidth.
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
        """Return the numbers for people: 1 Gbps, 150 us, full."""
        return link_numbers(self.bandwidth_Bps, self.latency_s, self.duplex)

    @property
    def conditions(self) -> list[str]:
        """The conditions that reduce its numbers, for people."""
        words = [f"on the medium {self.medium}"] if self.medium else []
        words += [f"acknowledgements take {self.ack_share:.2g} of the way back"] if self.ack_share else []
        words += [f"{self.loss:g} of packets lost"] if self.loss else []
        words += [str(part) for part in (self.jitter, self.trace) if part is not None]
        return words + ([f"background {self.background}"] if self.background else [])


def link_numbers(bandwidth_Bps: float, latency_s: float, duplex: str) -> str:
    """Return a text like "1 Gbps, 150 us, full"."""
    return f"{format_bandwidth(bandwidth_Bps)}, {format_latency(latency_s)}, {duplex}"


class Hop(NamedTuple):
    """One link of a route, traversed from a to b if *forward*, else from b to a."""

    link: Link
    forward: bool

    @property
    def source(self) -> str:
        return self.link.a if self.forward else self.link.b

    @property
    def target(self) -> str:
        return self.link.b if self.forward else self.link.a


class DocumentSource(Protocol):
    """What a topology's document can be made of."""

    def document(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Topology:
    """A checked cluster, made by `Topology.load` from a file or a shipped name, by `Topology.star(4)` and the other
    generators, or by `Topology.from_networkx(graph)`. *nodes* is in the order of the file.

    *network*: the network model of a simulation. *paths*: routes given in the file, as names from end to end; all
    others follow *routing*. *inbox_bytes*: the unread bytes that a node accepts per peer; None for the backend's
    default, 0 to make every message wait for its `recv`. *misfit*: per calibration round, the ratio of a rehearsed
    step's time to the time that these numbers predict. *startup_s*: per round, the extra time of messages over
    connections that had been idle, as once in a run. *machines*: those that several nodes share.

    *source* is the dict that it was read from, or what makes that when `document` is asked for. *generated* has the few
    keys of a generator, None if there was none or more was changed; `loads` turns them back into an equal Topology.
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
    machines: Mapping[str, Machine] = field(default_factory=dict)
    source: Mapping[str, Any] | DocumentSource = field(default_factory=dict, compare=False, repr=False)
    generated: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)

    # Static methods, set by simcluster.topology, since each reads what it makes like a file. A test compares the lines
    # of generators, which are for editors and type checkers, with the table of generators.
    star: ClassVar[Callable[..., Topology]]
    ring: ClassVar[Callable[..., Topology]]
    chain: ClassVar[Callable[..., Topology]]
    complete: ClassVar[Callable[..., Topology]]
    torus: ClassVar[Callable[..., Topology]]
    two_sites: ClassVar[Callable[..., Topology]]
    from_networkx: ClassVar[Callable[..., Topology]]
    load: ClassVar[Callable[..., Topology]]

    def __eq__(self, other: object) -> bool:
        # Mappings compare without order, but the order of the nodes is that of the ranks.
        return isinstance(other, Topology) and self._facts == other._facts

    def __hash__(self) -> int:
        return hash(self._facts)

    @property
    def _facts(self) -> tuple[Any, ...]:
        values = (getattr(self, field.name) for field in fields(self) if field.compare)
        return tuple(tuple(value.values()) if isinstance(value, Mapping) else value for value in values)

    @cached_property
    def document(self) -> Mapping[str, Any]:
        """The dict that it was read from, overrides included; `loads` turns it back into an equal Topology."""
        return self.source if isinstance(self.source, Mapping) else self.source.document()

    @cached_property
    def workers(self) -> list[str]:
        """The names of the nodes that compute; the index is the rank."""
        return [node.name for node in self.nodes.values() if node.is_worker]

    @property
    def is_one_machine(self) -> bool:
        """Whether all workers are processes of one machine."""
        machines = {self.nodes[name].machine for name in self.workers}
        return len(machines) == 1 and None not in machines

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
        """Return the links from *a* to *b*: one of *paths*, or the path over which a 1500-byte packet arrives first.

        Ties go to the path with fewer hops, then to the one through nodes earlier in the file; with ecmp, to one that
        both ends' names select. The route back is the reverse. Routes are computed on demand and cached. Raise
        ValueError for unknown names, or if no path exists (`load` ensures one between workers).
        """
        key = (a, b)
        if key in self._routes:
            return self._routes[key]
        if (back := self._routes.get((b, a))) is not None:
            there = self._routes[key] = tuple([Hop(link, not forward) for link, forward in reversed(back)])
            return there
        for name in (a, b):
            if name not in self.nodes:
                raise ValueError(f"topology {self.name} has no node {name!r}: {nearest(name, self.nodes)}")
        if hops := self.over_one_node(a, b):
            return self._routes.setdefault(key, hops)
        path = self._laid.get((a, b)) or self._routing.path(a, b)
        if path is None:
            raise ValueError(f"topology {self.name} has no path from {a} to {b}")
        links = ((self._link(*pair), pair[0]) for pair in itertools.pairwise(path))
        return self._routes.setdefault(key, tuple(Hop(link, link.a == source) for link, source in links))

    def over_one_node(self, a: str, b: str) -> tuple[Hop, ...]:
        """Return the route from *a* to *b* if each has one link, to the same node, as in a star; else ()."""
        first, last = self.only_links.get(a), self.only_links.get(b)
        if first is None or last is None or first is last:
            return ()
        hops = Hop(first, first.a == a), Hop(last, last.b == b)
        middle = hops[0].target
        return hops if middle == hops[1].source and self.nodes[middle].gateway else ()

    @cached_property
    def only_links(self) -> dict[str, Link | None]:
        """The link of each node that has one, None for a node with several."""
        found: dict[str, Link | None] = {}
        for link in self.links:
            for end in (link.a, link.b):
                found[end] = None if end in found else link
        return found

    def route_latency_s(self, a: str, b: str) -> float:
        """Return the one-way latency from *a* to *b*, bit-identical in both directions."""
        return math.fsum(hop.link.latency_s for hop in self.route(a, b))

    def route_bandwidth_Bps(self, a: str, b: str) -> float:
        """Return the bandwidth of the slowest link from *a* to *b*; infinite from a node to itself."""
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
            ((link.a, link.b, link.latency_s, link.bandwidth_Bps) for link in self.links),
            frozenset(node.name for node in self.nodes.values() if node.gateway),
            spread=self.routing == "ecmp",
        )

    def _link(self, a: str, b: str) -> Link:
        """Return the link between *a* and *b*, in whatever direction."""
        for first, second in ((a, b), (b, a)):
            found = self._links_from.get(first)
            if isinstance(found, dict):
                found = found.get(second)
            if found is not None and found.b == second:
                return found
        raise KeyError((a, b))

    @cached_property
    def _links_from(self) -> dict[str, Link | dict[str, Link]]:
        """The links by their first node: that one if there is no other, which saves memory where there are many."""
        found: dict[str, Link | dict[str, Link]] = {}
        for link in self.links:
            known = found.setdefault(link.a, link)
            if isinstance(known, dict):
                known[link.b] = link
            elif known is not link:
                found[link.a] = {known.b: known, link.b: link}
        return found
