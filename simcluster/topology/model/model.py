"""A topology: nodes with devices, and the links between them. All frozen."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol

import networkx

from simcluster.spelling import nearest
from simcluster.topology.model.compute import CPU, Machine
from simcluster.topology.model.conditions import BackgroundFlow
from simcluster.topology.model.device import Device
from simcluster.topology.model.link import Hop, Link, merged
from simcluster.topology.model.parallel import LinkChoice, Parallel, choices
from simcluster.topology.model.routing import PACKET_BYTES, Edge, Routes
from simcluster.topology.model.spread import NONE, Factors, Spread

NetworkKind = Literal["maxmin", "lv08"]
Routing = Literal["shortest", "ecmp"]


@dataclass(frozen=True, slots=True)
class Node:
    """A worker, which has a device and a rank; or a switch or a bare host, which has neither.

    - *gateway*: whether the node forwards messages.
    - *address*, *port*, *ssh*: how to reach the real node. *command* starts simcluster there, once
      for each of its *processes*.
    - *send_overhead_s*, *recv_overhead_s*: the time for which each message occupies the node, one
      message after another.
    - *host_bandwidth_Bps*: the limit on the sum of sending and receiving, over all links.
    - *send_buffer_bytes*: per peer, the size up to which a `send` returns at once, before the
      message has left.
    - *machine*: the machine with the cores that this node shares with others.
    - *compute*: the requested device, such as "cuda:1" or "auto".
    - *threads*: the limit on CPU threads of a language model's node; None if there is none.
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
    threads: int | None = None

    @property
    def is_worker(self) -> bool:
        return self.device is not None

    @property
    def kind(self) -> Literal["worker", "host", "switch"]:
        if self.is_worker:
            return "worker"
        return "host" if self.is_host else "switch"


def dialled(nodes: Iterable[Node], ends: Collection[str]) -> str | None:
    """Return the address to which one of *ends* connects: that of the first of *nodes* with one.

    Real nodes connect to lower ranks.
    """
    return next((node.address for node in nodes if node.name in ends and node.address), None)


class DocumentSource(Protocol):
    """An object that can make the document of a topology."""

    def document(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Topology:
    """A checked cluster. *nodes* is in the order of the file.

    Make one with `Topology.load` from a file or a shipped name, with `Topology.star(4)` and the
    other generators, or with `Topology.from_networkx(graph)`.

    - *network*: the network model of a simulation.
    - *paths*: the routes in the file, as names from end to end; all others follow *routing*.
    - *parallel*: the rule that chooses among links between the same two nodes, or the names of
      links in order of preference; a pair that they do not name follows the rule shortest.
    - *inbox_bytes*: the unread bytes that a node accepts per peer; None for the backend's default,
      0 to make every message wait for its `recv`.
    - *misfit*: per calibration round, the ratio of a rehearsed step's time to the time that these
      numbers predict.
    - *startup_s*: per calibration round, the extra time that the first messages of a run take,
      since connections have been idle.
    - *machines*: the machines that several nodes share.
    - *source*: the dict that the topology was read from, or an object that makes the dict.
    - *generated*: the keys of the generator that made the topology, from which `loads` makes an
      equal one; None if there was no generator, or if an override changed other keys.
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
    parallel: Parallel = "shortest"
    source: Mapping[str, Any] | DocumentSource = field(default_factory=dict, compare=False, repr=False)
    generated: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)

    # simcluster.topology sets these static methods, since they need the reader, which imports this
    # module. The annotations are for editors and type checkers. A test compares them with
    # GENERATORS.
    star: ClassVar[Callable[..., Topology]]
    ring: ClassVar[Callable[..., Topology]]
    chain: ClassVar[Callable[..., Topology]]
    complete: ClassVar[Callable[..., Topology]]
    torus: ClassVar[Callable[..., Topology]]
    two_sites: ClassVar[Callable[..., Topology]]
    from_networkx: ClassVar[Callable[..., Topology]]
    load: ClassVar[Callable[..., Topology]]

    def __eq__(self, other: object) -> bool:
        # Equality of mappings ignores their order, but the order of the nodes determines the ranks.
        return isinstance(other, Topology) and self._facts == other._facts

    def __hash__(self) -> int:
        return hash(self._facts)

    @property
    def _facts(self) -> tuple[Any, ...]:
        values = (getattr(self, field.name) for field in fields(self) if field.compare)
        return tuple(tuple(value.values()) if isinstance(value, Mapping) else value for value in values)

    @cached_property
    def document(self) -> Mapping[str, Any]:
        """The dict that the topology was read from, with overrides; `loads` makes an equal one."""
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

    def device(self, worker: str) -> Device:
        """Return the device of the node *worker*."""
        device = self.nodes[worker].device
        assert device is not None, "a worker has a device"
        return device

    @cached_property
    def graph(self) -> networkx.Graph[str]:
        """The cluster as a networkx graph: node attribute `node`, edge attribute `link`.

        It is a MultiGraph if several links join the same nodes.
        """
        graph: networkx.Graph[str] = (networkx.MultiGraph if self.bundles else networkx.Graph)(name=self.name)
        for node in self.nodes.values():
            graph.add_node(node.name, node=node)
        for link in self.links:
            graph.add_edge(link.a, link.b, link=link)
        return graph

    def route(self, a: str, b: str, size_bytes: float = PACKET_BYTES) -> tuple[Hop, ...]:
        """Return the links that a message of *size_bytes* takes from *a* to *b*, in order.

        They are those of one of *paths*, or else of the path on which a 1500-byte packet arrives
        first. Ties go to the path with fewer hops, then to the one through nodes earlier in the
        file; with ecmp, to one that both ends' names select. *parallel* chooses among links between
        the same two nodes; the size of a message matters only there, and not for the path. The
        route back is the reverse. Routes are computed on demand and cached. Raise ValueError for
        unknown names, or if no path exists. `load` ensures that one exists between any two workers.
        """
        if self.parallel == "size" and size_bytes != PACKET_BYTES:
            ends = [(hop.source, hop.target) for hop in self.route(a, b)]
            return tuple(hop for pair in ends for hop in self._hops(*pair, size_bytes))
        key = (a, b)
        if key in self._routes:
            return self._routes[key]
        if (back := self._routes.get((b, a))) is not None:
            there = self._routes[key] = tuple(
                [Hop(link, not forward, share) for link, forward, share in reversed(back)]
            )
            return there
        for name in (a, b):
            if name not in self.nodes:
                raise ValueError(f"topology {self.name} has no node {name!r}: {nearest(name, self.nodes)}")
        if hops := self.over_one_node(a, b):
            return self._routes.setdefault(key, hops)
        path = self._laid.get((a, b)) or self._routing.path(a, b)
        if path is None:
            raise ValueError(f"topology {self.name} has no path from {a} to {b}")
        found = tuple(hop for pair in itertools.pairwise(path) for hop in self._hops(*pair, PACKET_BYTES))
        return self._routes.setdefault(key, found)

    def routes(self, a: str, b: str) -> list[tuple[float, tuple[Hop, ...]]]:
        """Return (most bytes of a message, its route from *a* to *b*), in ascending order of size.

        There are several only if *parallel* is size.
        """
        hops = self.route(a, b)
        if self.parallel != "size" or not any(hop.link.number for hop in hops):
            return [(math.inf, hops)]
        limits = {one.most_bytes for hop in hops for one in self.bundles.get((hop.source, hop.target), ())}
        return [(most_bytes, self.route(a, b, most_bytes)) for most_bytes in sorted({*limits, math.inf})]

    def carried(self, a: str, b: str, size_bytes: int, by_route: Sequence[int] = ()) -> Iterator[tuple[Hop, int]]:
        """Yield (hop, bytes) for messages from *a* to *b*: *by_route*, of each of `routes`, if given.

        Otherwise all *size_bytes* take the first.
        """
        for (_, hops), part_bytes in zip(self.routes(a, b), by_route or (size_bytes,), strict=False):
            for hop in hops:
                yield hop, part_bytes if hop.share == 1.0 else round(part_bytes * hop.share)

    def used(self, a: str, b: str) -> list[Hop]:
        """Return the hops from *a* to *b* that any message takes."""
        return [hop for _, hops in self.routes(a, b) for hop in hops]

    @cached_property
    def bundles(self) -> dict[tuple[str, str], tuple[LinkChoice, ...]]:
        """Two nodes that several links join, in either order -> the choices among these links."""
        found: dict[tuple[str, str], list[Link]] = {}
        for link in self.links:
            if link.number:
                found.setdefault((link.b, link.a) if (link.b, link.a) in found else (link.a, link.b), []).append(link)
        by_address = self.parallel == "address"
        chosen = {
            ends: choices(links, self.parallel, dialled(self.nodes.values(), ends) if by_address else None)
            for ends, links in found.items()
        }
        return chosen | {(b, a): found for (a, b), found in chosen.items()}

    def over_one_node(self, a: str, b: str) -> tuple[Hop, ...]:
        """Return the route from *a* to *b* if their only links lead to one gateway, else ()."""
        first, last = self.only_links.get(a), self.only_links.get(b)
        if first is None or last is None or first is last:
            return ()
        hops = Hop(first, first.a == a), Hop(last, last.b == b)
        middle = hops[0].target
        return hops if middle == hops[1].source and self.nodes[middle].gateway else ()

    @cached_property
    def only_links(self) -> dict[str, Link | None]:
        """Node -> its link if it has only one, else None."""
        found: dict[str, Link | None] = {}
        for link in self.links:
            for end in (link.a, link.b):
                found[end] = None if end in found else link
        return found

    def route_latency_s(self, a: str, b: str, size_bytes: float = PACKET_BYTES) -> float:
        """Return the one-way latency from *a* to *b*, bit-identical in both directions."""
        return math.fsum(link.latency_s for link in merged(self.route(a, b, size_bytes)))

    def route_bandwidth_Bps(self, a: str, b: str, size_bytes: float = PACKET_BYTES) -> float:
        """Return the bandwidth of the slowest link from *a* to *b*; infinite from a node to itself."""
        return min((link.bandwidth_Bps for link in merged(self.route(a, b, size_bytes))), default=math.inf)

    @cached_property
    def _routes(self) -> dict[tuple[str, str], tuple[Hop, ...]]:
        return {}

    @cached_property
    def _laid(self) -> dict[tuple[str, str], Sequence[str]]:
        """Both ends of each path in the file -> its names, in both directions."""
        return {(way[0], way[-1]): way for path in self.paths for way in (path, path[::-1])}

    @cached_property
    def _routing(self) -> Routes:
        return Routes(
            list(self.nodes),
            self._edges(),
            frozenset(node.name for node in self.nodes.values() if node.gateway),
            spread=self.routing == "ecmp",
        )

    def _edges(self) -> Iterator[Edge]:
        """Yield the edge of every link, and one for each two nodes that several links join."""
        for link in self.links:
            if not link.number:
                yield link.a, link.b, link.latency_s, link.bandwidth_Bps
            elif link.number == 1:
                (one,) = merged(self._hops(link.a, link.b, PACKET_BYTES))
                yield link.a, link.b, one.latency_s, one.bandwidth_Bps

    def _hops(self, a: str, b: str, size_bytes: float) -> list[Hop]:
        """Return the links that a message of *size_bytes* takes from *a* to its neighbour *b*."""
        known = self.bundles.get((a, b))
        if known is None:
            link = self._link(a, b)
            return [Hop(link, link.a == a)]
        parts = next(one.parts for one in known if size_bytes <= one.most_bytes)
        return [Hop(link, link.a == a, share) for link, share in parts]

    def _link(self, a: str, b: str) -> Link:
        """Return the only link between *a* and *b*, which the file may list in either direction."""
        for first, second in ((a, b), (b, a)):
            found = self._links_from.get(first)
            if isinstance(found, dict):
                found = found.get(second)
            if found is not None and found.b == second:
                return found
        raise KeyError((a, b))

    @cached_property
    def _links_from(self) -> dict[str, Link | dict[str, Link]]:
        """First node -> its only link, or if it has several, a dict (second node -> link).

        Large clusters have many nodes with one link, which need no dict.
        """
        found: dict[str, Link | dict[str, Link]] = {}
        for link in self.links:
            known = found.setdefault(link.a, link)
            if isinstance(known, dict):
                known[link.b] = link
            elif known is not link:
                found[link.a] = {known.b: known, link.b: link}
        return found
