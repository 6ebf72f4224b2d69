"""Find the graph of a platform that lists the links of each route, but not what the links join."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from simcluster.errors import UsageError
from simcluster.topology.model.routing import Edge, Routes
from simcluster.topology.read.formats.cluster import ForeignCluster, distinct_names
from simcluster.units import write_bandwidth, write_latency

ACK_SHARE = 0.05
"""SimGrid's network/crosstraffic: the rate of acknowledgements on the way back."""

MOST_LINKS = 20_000

DUPLEX = {"SHARED": "half", "SPLITDUPLEX": "full", "FATPIPE": "free"}


class PlatformLink(NamedTuple):
    """A link of SimGrid: *policy* is SHARED, SPLITDUPLEX or FATPIPE."""

    bandwidth_Bps: float
    latency_s: float
    policy: str


class LinkCrossing(NamedTuple):
    """A *link* on a route, crossed *up* (1), down (-1), or in no direction that is known (0)."""

    link: str
    up: int

    @property
    def back(self) -> LinkCrossing:
        return LinkCrossing(self.link, -self.up)


Way = list[LinkCrossing]
Ways = Mapping[tuple[str, str], Way]
_End = tuple[Any, ...]


def keys_of(link: PlatformLink) -> dict[str, Any]:
    """Return the keys of *link* in a topology."""
    keys = {"bandwidth": write_bandwidth(link.bandwidth_Bps), "latency": write_latency(link.latency_s)}
    keys["duplex"] = DUPLEX[link.policy]
    return keys if link.policy == "FATPIPE" else {**keys, "ack_share": ACK_SHARE}


def graph_of_routes(
    found: ForeignCluster, names: Mapping[str, str], ways: Ways, links: Mapping[str, PlatformLink], file: str
) -> None:
    """Add to *found* the links and switches on which each pair of hosts takes its way of *ways*.

    A link with two known ends is one link. Another is a link for each pair of places that it joins,
    all on one medium if it is shared. *names* maps hosts to nodes.
    """
    problem = ""
    for up in (_access(ways, links), {}):
        graph = _RouteGraph(names, ways, links, up, file)
        problem = graph.problem
        if not problem:
            graph.put(found)
            return
    raise UsageError("route", problem, "routes that one graph has, with one link between two places", file)


def _access(ways: Ways, links: Mapping[str, PlatformLink]) -> dict[str, str]:
    """Return link -> the host at one end, for links that are the first or last one on all their routes."""
    hosts: dict[str, set[str]] = {}
    for (a, b), way in ways.items():
        for place, (link, _) in enumerate(way):
            here = {host for host, end in ((a, 0), (b, len(way) - 1)) if place == end}
            hosts[link] = hosts[link] & here if link in hosts else here
    return {link: min(those) for link, those in hosts.items() if those and links[link].policy != "SPLITDUPLEX"}


class _RouteGraph:
    """The places that links join: the ends of links are the same place where a route says so.

    *up* has the links that begin at a host, and that host.
    """

    def __init__(
        self,
        names: Mapping[str, str],
        ways: Ways,
        links: Mapping[str, PlatformLink],
        up: Mapping[str, str],
        file: str,
    ) -> None:
        self.names = names
        self.links = links
        self.up = up
        self.file = file
        self.same: dict[_End, _End] = {}
        parts = {pair: self._parts(*pair, way) for pair, way in ways.items()}
        self.ways = {pair: [(link, self.find(a), self.find(b)) for link, a, b in part] for pair, part in parts.items()}
        self.problem = self._wrong()

    def find(self, end: _End) -> _End:
        while (other := self.same.get(end, end)) != end:
            self.same[end] = self.same.get(other, other)
            end = other
        return end

    def _join(self, a: _End, b: _End) -> None:
        a, b = self.find(a), self.find(b)
        # A host stands for its place.
        first, other = (a, b) if a[0] == "host" or b[0] != "host" else (b, a)
        if first != other:
            self.same[other] = first

    def _parts(self, a: str, b: str, way: Way) -> list[tuple[str, _End, _End]]:
        parts: list[tuple[str, _End, _End]] = []
        at: _End = ("host", a)
        start: _End
        for place, (link, up) in enumerate(way):
            if link in self.up:
                up = 1 if self.up[link] == a and place == 0 else -1
                self._join(("end", link, 0), ("host", self.up[link]))
            if up:
                start = ("end", link, int(up < 0))
                end: _End = ("end", link, int(up > 0))
            else:
                start = at
                end = ("between", a, b, place)
            self._join(at, start)
            parts.append((link, start, end))
            at = end
        self._join(at, ("host", b))
        return parts

    def _wrong(self) -> str:
        """Return what no graph can have, or ""."""
        for host in self.names:
            if self.find(("host", host)) != ("host", host):
                return f"{host} and {self.find(('host', host))[1]} in one place"
        joins: dict[frozenset[_End], str] = {}
        for (a, b), way in self.ways.items():
            places = [start for _, start, _ in way] + [end for _, _, end in way[-1:]]
            if len(set(places)) < len(places) or len(places) < 2:
                return f"a way from {a} to {b} that crosses no link or one place twice"
            for link, *ends in way:
                if joins.setdefault(frozenset(ends), link) != link:
                    return f"the links {joins[frozenset(ends)]} and {link} between the same two places"
        times = Counter(joins.values())
        split = [link for link, count in times.items() if count > 1 and self.links[link].policy == "SPLITDUPLEX"]
        return f"the link {split[0]}, which is split, between several places" if split else ""

    def put(self, found: ForeignCluster) -> None:
        nodes: dict[_End, str] = {("host", host): name for host, name in self.names.items()}
        joins = {frozenset(part[1:]): part for way in self.ways.values() for part in way}
        if len(joins) > MOST_LINKS:
            raise UsageError("route", f"a graph of {len(joins):,} links", f"at most {MOST_LINKS:,}", self.file)
        times = Counter(link for link, _, _ in joins.values())
        media = distinct_names({link: link for link, count in times.items() if count > 1})
        edges: list[Edge] = []
        number = 0
        for link, *ends in joins.values():
            for end in ends:
                if end not in nodes:
                    while f"sw{number}" in found.nodes:
                        number += 1
                    nodes[end] = f"sw{number}"
                    found.nodes[nodes[end]] = {"kind": "switch"}
            keys = keys_of(self.links[link])
            if link in media and self.links[link].policy == "SHARED":
                keys["medium"] = media[link]
            a, b = nodes[ends[0]], nodes[ends[1]]
            found.link(a, b, f"link {link}", **keys)
            edges.append((a, b, self.links[link].latency_s, self.links[link].bandwidth_Bps))
        plain = Routes(list(found.nodes), edges, frozenset(found.nodes))
        routes = [[nodes[way[0][1]], *(nodes[end] for _, _, end in way)] for way in self.ways.values()]
        found.head["routes"] = [route for route in routes if plain.path(route[0], route[-1]) != route]
