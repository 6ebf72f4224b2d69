"""Find the links of a message through SimGrid's zones, as SimGrid does."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from simcluster.errors import UsageError
from simcluster.spelling import nearest
from simcluster.topology.read.formats.route_graph import LinkCrossing, Way

MOST_HOSTS = 128
"""Limit on the hosts of a platform with routes that are listed pair by pair."""

MOST_CROSSINGS = 100
"""Limit on the links of one route."""


class ZonePath(NamedTuple):
    """The links between two points of a zone.

    If these are zones, the gates are the first and the last point inside them.
    """

    first: str | None
    links: Way
    last: str | None

    @property
    def back(self) -> ZonePath:
        return ZonePath(self.last, [one.back for one in reversed(self.links)], self.first)


@dataclass
class PlatformZone:
    """A zone with its *points*: hosts, routers and zones, each with its place in the file.

    *private* has the ways of a cluster's hosts, up and down.
    """

    name: str
    routing: str
    parent: PlatformZone | None
    points: dict[str, int] = field(default_factory=dict)
    zones: dict[str, PlatformZone] = field(default_factory=dict)
    paths: dict[tuple[str, str], ZonePath] = field(default_factory=dict)
    private: dict[str, tuple[Way, Way]] = field(default_factory=dict)
    backbone: str | None = None
    _trees: dict[str, dict[tuple[str, str], str]] = field(default_factory=dict)

    def add(self, ends: tuple[str, str], path: ZonePath, *, both: bool) -> None:
        self.paths[ends] = path
        if both:
            self.paths.setdefault(ends[::-1], path.back)

    def only_name(self) -> str:
        return next(iter(self.zones)) if len(self.zones) == 1 else ""

    def steps(self, a: str, b: str) -> Sequence[ZonePath] | None:
        """Return the paths in the file that lead from *a* to *b*, one after the other; None if none do."""
        if self.routing == "Cluster":
            bone = [LinkCrossing(self.backbone, 0)] if self.backbone is not None else []
            up, down = self.private.get(a, ([], []))[0], self.private.get(b, ([], []))[1]
            return [ZonePath(None, [*up, *bone, *down], None)]
        if self.routing in ("Full", "None"):
            return [self.paths[a, b]] if (a, b) in self.paths else None
        if self.routing == "Floyd":
            before = self._floyd
        else:
            before = self._trees[a] if a in self._trees else self._trees.setdefault(a, self._dijkstra(a))
        steps: list[ZonePath] = []
        while b != a:
            if (a, b) not in before:
                return None
            steps.insert(0, self.paths[before[a, b], b])
            b = before[a, b]
        return steps

    @cached_property
    def _floyd(self) -> dict[tuple[str, str], str]:
        """(a, b) -> the point before b on the way from a with the fewest links; ties as in SimGrid."""
        if len(self.points) > MOST_HOSTS:
            expected = f"at most {MOST_HOSTS}; Dijkstra for more"
            raise UsageError(f"zone {self.name}", f"Floyd with {len(self.points):,} points", expected)
        cost = {pair: len(path.links) for pair, path in self.paths.items()}
        before = {pair: pair[0] for pair in self.paths}
        for middle in self.points:
            for a in [a for a in self.points if (a, middle) in cost]:
                for b in [b for b in self.points if (middle, b) in cost]:
                    total = cost[a, middle] + cost[middle, b]
                    if total < cost.get((a, b), total + 1):
                        cost[a, b] = total
                        before[a, b] = before[middle, b]
        return before

    def _dijkstra(self, start: str) -> dict[tuple[str, str], str]:
        after: dict[str, list[tuple[str, int]]] = {}
        for (a, b), path in self.paths.items():
            after.setdefault(a, []).append((b, len(path.links)))
        cost = {start: 0}
        before: dict[tuple[str, str], str] = {}
        heap = [(0, self.points[start], start)]
        while heap:
            so_far, _, point = heapq.heappop(heap)
            for other, links in after.get(point, ()):
                if so_far + links < cost.get(other, so_far + links + 1):
                    cost[other] = so_far + links
                    before[start, other] = point
                    heapq.heappush(heap, (cost[other], self.points[other], other))
        return before


class ZoneRoutes:
    """The links between two points of a platform; *home* has the zone of each point, host or zone."""

    def __init__(self, home: Mapping[str, PlatformZone], file: str) -> None:
        self._home = home
        self._file = file
        self._known: dict[tuple[str, str], Way | None] = {}

    def between(self, a: str, b: str) -> Way:
        """Return the links from *a* to *b*. Raise UsageError if there is no route or if it never ends."""
        if a == b:
            return []
        if (a, b) not in self._known:
            self._known[a, b] = None  # until it is found: a gate may lead back here
            self._known[a, b] = self._found(a, b)
        if (links := self._known[a, b]) is None or len(links) > MOST_CROSSINGS:
            expected = f"at most {MOST_CROSSINGS} links, through gates inside their zones"
            raise UsageError("route", f"a route from {a!r} to {b!r} without an end", expected, self._file)
        return links

    def _found(self, a: str, b: str) -> Way:
        for point in (a, b):
            if point not in self._home:
                raise UsageError("route", f"unknown gate {point!r}", nearest(point, self._home), self._file)
        up, down = _line(self._home, a), _line(self._home, b)
        common = next(zone for zone, _ in up if any(zone is other for other, _ in down))
        first = next(point for zone, point in up if zone is common)
        last = next(point for zone, point in down if zone is common)
        steps = common.steps(first, last)
        if steps is None:
            expected = "routes between all of its hosts, in the file or by its routing"
            raise UsageError(f"zone {common.name}", f"no route from {first!r} to {last!r}", expected, self._file)
        links: Way = []
        at = a
        for step in steps:
            links += [*(self.between(at, step.first) if step.first is not None else ()), *step.links]
            at = step.last if step.last is not None else b
        return links + (self.between(at, b) if steps and steps[-1].last is not None else [])


def _line(home: Mapping[str, PlatformZone], point: str) -> list[tuple[PlatformZone, str]]:
    """Return (zone, the point of it that is or holds *point*), from the innermost zone to the outermost."""
    found = []
    while point in home:
        found.append((home[point], point))
        point = home[point].name
    return found
