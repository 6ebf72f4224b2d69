"""Read platforms of SimGrid, versions 3 to 4.1: hosts, links and routes in zones.

A platform says which links a message takes, not what they join; `route_graph` finds that. SimGrid's
own model of TCP comes along: network lv08, with acknowledgements that take 5 % of the way back
(network/crosstraffic), links that share their bandwidth between both ways unless they are split.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any

from simcluster.documents.values import extreme
from simcluster.documents.yaml_errors import MAX_DEPTH
from simcluster.errors import UsageError
from simcluster.spelling import nearest
from simcluster.topology.read.formats.cluster import MOST_NODES, ForeignCluster, distinct_names
from simcluster.topology.read.formats.route_graph import (
    DUPLEX,
    LinkCrossing,
    PlatformLink,
    Way,
    graph_of_routes,
    keys_of,
)
from simcluster.topology.read.formats.safe_xml import parse_xml
from simcluster.topology.read.formats.zones import MOST_HOSTS, PlatformZone, ZonePath, ZoneRoutes
from simcluster.units import write_rate

_PREFIXES = {"": 1.0, **{p: 1e3 ** (i + 1) for i, p in enumerate("kMGTPEZY")}}
_PREFIXES |= {f"{p}i": 1024.0 ** (i + 1) for i, p in enumerate("KMGTPEZY")}
_UNITS: Mapping[str, Mapping[str, float]] = {
    "bandwidth": {f"{p}{unit}": size / n for p, size in _PREFIXES.items() for unit, n in (("Bps", 1), ("bps", 8))},
    "speed": {f"{p}{unit}": size for p, size in _PREFIXES.items() for unit in ("f", "flops")},
    "latency": {"ps": 1e-12, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3.6e3, "d": 8.64e4},
}
_BARE = {"bandwidth": "Bps", "speed": "f", "latency": "s"}
_SKIPPED = ("prop", "config", "storage_type", "storage", "mount", "gpu", "disk")
_UNREAD = ("availability_file", "state_file", "bandwidth_file", "latency_file", "loopback_bw", "loopback_lat")
_ROUTINGS = ("Full", "Floyd", "Dijkstra", "DijkstraCache", "Cluster", "None")


def read_simgrid(text: str, file: str) -> ForeignCluster:
    """Return the cluster of a SimGrid platform. Raise UsageError for what no topology can say."""
    return _PlatformReading(parse_xml(text, file, "SimGrid's XML"), file).cluster()


class _PlatformReading:
    """The zones, hosts and links of a platform, read from its XML."""

    def __init__(self, root: Any, file: str) -> None:
        self.file = file
        self.hosts: dict[str, tuple[dict[str, Any], str]] = {}
        self.links: dict[str, PlatformLink] = {}
        self.skipped: dict[str, int] = {}
        self.home: dict[str, PlatformZone] = {}
        self.root = PlatformZone("", "Full", None)  # no id is empty
        self._read_all(root, self.root)

    def cluster(self) -> ForeignCluster:
        flat = self._flat()
        if not self.hosts or (len(self.hosts) > MOST_HOSTS and flat is None):
            expected = f"1 to {MOST_HOSTS}, or one cluster of at most {MOST_NODES:,}"
            raise self.wrong("platform", f"{len(self.hosts):,} hosts", expected)
        found = ForeignCluster(head={"name": self.root.only_name(), "network": "lv08"})
        names = distinct_names({host: host for host in self.hosts})
        for host, (keys, origin) in self.hosts.items():
            found.nodes[names[host]] = keys
            found.origins[names[host]] = origin
        if flat is not None:
            self._star(found, names, flat)
        else:
            routes = ZoneRoutes(self.home, self.file)
            ways = {pair: self._way(routes, *pair) for pair in combinations(self.hosts, 2)}
            graph_of_routes(found, names, ways, self.links, self.file)
        found.notes += ["network lv08 is SimGrid's default model, LV08", "a link that is SHARED is half duplex"]
        if any("core" in origin for _, origin in self.hosts.values()):
            found.notes.append("flops are speed times core")
        words = [f"{name} ({count})" for name, count in self.skipped.items()]
        found.warnings += [f"ignored: {', '.join(words)}"] if words else []
        return found

    def _way(self, routes: ZoneRoutes, a: str, b: str) -> Way:
        there = routes.between(a, b)
        back = routes.between(b, a)
        if [one.back for one in reversed(back)] != there:
            expected = "the same links both ways: a route goes both ways here"
            raise self.wrong("route", f"another route from {a} to {b} than back", expected)
        return there

    def _flat(self) -> PlatformZone | None:
        """Return the zone of all hosts if it is a cluster whose backbone is shared, else None."""
        zones = {id(self.home[host]): self.home[host] for host in self.hosts}
        zone = next(iter(zones.values())) if len(zones) == 1 else None
        if zone is None or zone.routing != "Cluster" or any(host not in zone.private for host in self.hosts):
            return None
        backbone = zone.backbone
        is_plain = all(up == [one.back for one in reversed(down)] for up, down in zone.private.values())
        return zone if is_plain and (backbone is None or self.links[backbone].policy == "SHARED") else None

    def _star(self, found: ForeignCluster, names: Mapping[str, str], zone: PlatformZone) -> None:
        """Add the links of a cluster: from each host to one switch in the middle.

        Each message crosses the backbone once, so each half of a way has half of its latency and
        twice its bandwidth, on one medium.
        """
        taken = frozenset(names.values())
        ports = distinct_names({host: f"{name[:58]}_port" for host, name in names.items()})
        for host in self.hosts:
            ups = zone.private[host][0]
            links: list[tuple[str, PlatformLink, dict[str, str]]] = [
                (f"link {link}", self.links[link], {}) for link, _ in ups
            ]
            if zone.backbone is not None:
                bone = self.links[zone.backbone]
                half = PlatformLink(2 * bone.bandwidth_Bps, bone.latency_s / 2, "SHARED")
                links.append((f"half of the way over {zone.backbone}", half, {"medium": "backbone"}))
            at = names[host]
            for left, (origin, link, more) in zip(range(len(links) - 1, -1, -1), links, strict=True):
                to = f"{ports[host]}{left}" if left else "switch"
                if to in taken:
                    raise self.wrong("host", f"a host called {to}", "another name: a switch has this one")
                found.nodes[to] = {"kind": "switch"}
                found.link(at, to, origin, **keys_of(link), **more)
                at = to

    # the XML

    def wrong(self, key: str, found: str, expected: str) -> UsageError:
        return UsageError(key, found, expected, self.file)

    def _read_all(self, element: Any, zone: PlatformZone, depth: int = 0) -> None:
        if depth > MAX_DEPTH:
            raise self.wrong("zone", "deeper nesting", f"at most {MAX_DEPTH} levels")
        readers: Mapping[str, Callable[[Any, PlatformZone], object]] = {
            "host": lambda one, zone: self._host(one, self._point(self._id(one), zone)),
            "link": lambda one, _: self._link(one),
            "router": lambda one, zone: self._point(self._id(one), zone),
            **dict.fromkeys(("route", "zoneRoute", "ASroute"), self._route),
            "cluster": self._cluster,
            "cabinet": self._members,
            "host_link": self._host_link,
            "backbone": lambda one, zone: setattr(zone, "backbone", self._link(one)),
        }
        for one in element:
            if one.tag in ("zone", "AS"):
                routing = str(one.get("routing"))
                known = next((name for name in _ROUTINGS if name.lower() == routing.lower()), None)
                if known is None:
                    raise self.wrong(f"zone {one.get('id')}", f"the routing {routing!r}", nearest(routing, _ROUTINGS))
                self._read_all(one, self._zone(self._id(one), known, zone), depth + 1)
            elif one.tag not in readers and one.tag not in _SKIPPED:
                raise self.wrong(f"<{one.tag}>", "an element that is not read", f"one of zone, {', '.join(readers)}")
            else:
                if one.tag in readers:
                    readers[one.tag](one, zone)
                for name in [one.tag] if one.tag in _SKIPPED else [name for name in _UNREAD if one.get(name)]:
                    self.skipped[name] = self.skipped.get(name, 0) + 1

    def _zone(self, name: str, routing: str, parent: PlatformZone) -> PlatformZone:
        self._point(name, parent)
        parent.zones[name] = PlatformZone(name, routing, parent)
        return parent.zones[name]

    def _point(self, name: str, zone: PlatformZone) -> str:
        if name in self.home:
            raise self.wrong(name, "a second host, router or zone with this id", "each id once")
        self.home[name] = zone
        zone.points[name] = len(zone.points)
        return name

    def _id(self, element: Any, key: str = "id") -> str:
        name = element.get(key)
        if not name:
            raise self.wrong(f"<{element.tag}>", f"no {key}", f"its {key}")
        return str(name)

    def _host(self, element: Any, name: str) -> None:
        speed = self._quantity(element, "speed")
        core = element.get("core", "1")
        if not str(core).isdecimal() or not 0 < int(core) < 10_000:
            raise self.wrong(name, f"core {core!r}", "a whole number of cores")
        # SimGrid: "the total computing power is no_of_cores*speed"
        origin = f"speed {element.get('speed')}" + (f" x {core} of core" if core != "1" else "")
        self.hosts[name] = {"flops": write_rate(speed * int(core))}, origin

    def _link(self, element: Any) -> str:
        numbers = self._quantity(element, "bandwidth"), self._quantity(element, "latency", "0")
        return self._add_link(self._id(element), *numbers, element.get("sharing_policy", "SHARED"))

    def _add_link(self, name: str, bandwidth_Bps: float, latency_s: float, policy: str) -> str:
        policy = policy.replace("FULLDUPLEX", "SPLITDUPLEX")
        if policy not in DUPLEX or name in self.links:
            found = f"a second link {name!r}" if name in self.links else f"the sharing_policy {policy!r}"
            raise self.wrong(f"link {name}", found, f"each link once, {', '.join(DUPLEX)}")
        self.links[name] = PlatformLink(bandwidth_Bps, latency_s, policy)
        return name

    def _crossing(self, name: str, direction: str) -> LinkCrossing:
        for end in ("_UP", "_DOWN"):
            if name not in self.links and name.endswith(end):
                name, direction = name[: -len(end)], end[1:]
        if name not in self.links:
            raise self.wrong("link", f"unknown link {name!r}", nearest(name, self.links))
        return LinkCrossing(name, {"UP": 1, "DOWN": -1}.get(direction, 0))

    def _route(self, element: Any, zone: PlatformZone) -> None:
        ends = self._id(element, "src"), self._id(element, "dst")
        for end in ends:
            if end not in zone.points:
                expected = f"one of zone {zone.name}: {nearest(end, zone.points)}"
                raise self.wrong(f"<{element.tag}>", f"unknown end {end!r}", expected)
        gates = [element.get(f"gw_{end}") for end in ("src", "dst")]
        parts = [one for one in element if one.tag.startswith("link_ctn")]
        links = [self._crossing(self._id(one), one.get("direction", "NONE")) for one in parts]
        zone.add(ends, ZonePath(gates[0], links, gates[1]), both=element.get("symmetrical", "YES").upper() == "YES")

    def _cluster(self, element: Any, parent: PlatformZone) -> None:
        name = self._id(element)
        if element.get("topology", "FLAT") != "FLAT":
            raise self.wrong(f"cluster {name}", f"topology {element.get('topology')}", "FLAT; or a generator: torus")
        zone = self._zone(name, "Cluster", parent)
        self._members(element, zone)
        if element.get("bb_bw"):
            numbers = self._quantity(element, "bb_bw"), self._quantity(element, "bb_lat", "0")
            policy = element.get("bb_sharing_policy", "SHARED")
            zone.backbone = self._add_link(f"{name}_backbone", *numbers, policy)
        router = f"{element.get('prefix', '')}{name}_router{element.get('suffix', '')}"
        self._point(element.get("router_id") or router, zone)

    def _members(self, element: Any, zone: PlatformZone) -> None:
        """Add the hosts of a cluster or a cabinet, each with its private link."""
        numbers = self._quantity(element, "bw"), self._quantity(element, "lat", "0")
        policy = element.get("sharing_policy", "SPLITDUPLEX")
        limit = self._quantity(element, "limiter_link") if element.get("limiter_link") else None
        for number in self._radical(element):
            host = self._point(f"{element.get('prefix', '')}{number}{element.get('suffix', '')}", zone)
            self._host(element, host)
            up = [LinkCrossing(self._add_link(f"{self._id(element)}_link_{number}", *numbers, policy), 1)]
            if limit is not None:
                up.insert(0, LinkCrossing(self._add_link(f"{up[0].link}_limiter", limit, 0.0, "SHARED"), 0))
            zone.private[host] = up, [one.back for one in reversed(up)]

    def _radical(self, element: Any) -> list[int]:
        numbers: list[int] = []
        for part in self._id(element, "radical").split(","):
            first, _, last = part.strip().partition("-")
            if not re.fullmatch(r"\d{1,9}", first) or not re.fullmatch(r"\d{0,9}", last):
                raise self.wrong("radical", repr(part), "numbers, as in 0-7,12")
            span = range(int(first), int(last or first) + 1)
            if not span:
                raise self.wrong("radical", f"the backward range {part!r}", "its lower end first")
            if len(self.hosts) + len(numbers) + len(span) > MOST_NODES:
                raise self.wrong("radical", f"more than {MOST_NODES:,} hosts", "fewer")
            numbers += span
        return numbers

    def _host_link(self, element: Any, zone: PlatformZone) -> None:
        up, down = (self._crossing(self._id(element, key), key.upper()) for key in ("up", "down"))
        if self.links[up.link].policy != "SPLITDUPLEX":
            up, down = LinkCrossing(up.link, 0), LinkCrossing(down.link, 0)
        zone.private[self._id(element)] = [up], [down]

    def _quantity(self, element: Any, key: str, default: str | None = None) -> float:
        """Return the number of the attribute *key* in its base unit; without a unit, SimGrid's own counts."""
        kind = {"bw": "bandwidth", "lat": "latency", "limiter_link": "bandwidth"}.get(key.removeprefix("bb_"), key)
        text = element.get(key, default)
        first = str(text or "").split(",")[0].strip()  # further speeds are those of power states
        found = re.fullmatch(r"(\d+(?:\.\d*)?(?:[eE][+-]?\d{1,3})?|\.\d+(?:[eE][+-]?\d{1,3})?)\s*([A-Za-z]*)", first)
        scale = _UNITS[kind].get(found[2] or _BARE[kind]) if found else None
        value = -1.0
        if found is not None and scale is not None:
            # A division, as 1e-6 is no exact double and 1e6 is: 50us are 5e-05 s, not 4.9999999999999996e-05.
            value = float(found[1]) * scale if scale >= 1 else float(found[1]) / round(1 / scale)
        if value < 0 or extreme(value) or not (value or kind == "latency"):
            example = {"bandwidth": "125MBps", "speed": "1Gf", "latency": "50us"}[kind]
            expected = f"one with its unit, as in {example}"
            raise self.wrong(f"{element.tag} {element.get('id')}", f"{key} {text!r}", expected)
        return value
