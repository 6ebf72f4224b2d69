"""The critical path: walks back from the end of a run, and assigns each moment to what was waited for.

Anything that a node does starts when something else on it ended: its own work, a message that arrived or left. A
message that was waited for leads to its sender, at the time when it began to send. So the walk back never branches, and
its legs cover the time from end to start without a gap.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simcluster.runs.spans import Span
from simcluster.topology import Topology

Floats = NDArray[np.float64]
LegKind = Literal["compute", "link", "nic", "latency", "idle"]

GRAIN_S = 1.5e-9
"""Traces have a resolution of a nanosecond; closer times are equal."""

_ORDER = {"compute": 2, "recv": 1, "send": 0}
"""Among events that end at one moment, the highest is taken as the one waited for."""


class PathLeg(NamedTuple):
    """From *start_s* to *end_s* the run waited for *where*: a device at work, a link's or a node's bandwidth, a link's
    latency, or something that the trace does not show (a timer). *between* is the message's (source, target), if there
    was one.
    """

    kind: LegKind
    where: str
    start_s: float
    end_s: float
    between: tuple[str, str] | None = None


class PathPart(NamedTuple):
    """All legs of one *kind* and *where*: *share* of the path. *between*: the pair with most of these messages."""

    kind: LegKind
    where: str
    seconds: float
    share: float
    between: tuple[str, str] | None


@dataclass(frozen=True)
class CriticalPath:
    """The *legs*, in order of time, from the start to *end_s*. *cut_short*: the trace covers only part of the run."""

    legs: tuple[PathLeg, ...]
    end_s: float
    cut_short: bool = False

    @cached_property
    def parts(self) -> list[PathPart]:
        """Return the parts of the path, the longest first."""
        seconds: dict[tuple[LegKind, str], float] = defaultdict(float)
        ways: dict[tuple[LegKind, str], dict[tuple[str, str], float]] = defaultdict(lambda: defaultdict(float))
        for leg in self.legs:
            key = (leg.kind, leg.where)
            seconds[key] = seconds[key] + leg.end_s - leg.start_s
            if leg.between is not None:
                ways[key][leg.between] += leg.end_s - leg.start_s
        total = sum(seconds.values())
        found = [
            PathPart(
                *key, spent, spent / total if total else 0.0, max(ways[key], key=ways[key].__getitem__, default=None)
            )
            for key, spent in seconds.items()
        ]
        return sorted(found, key=lambda part: (-part.seconds, part.kind, part.where))


def critical_path(
    spans: Sequence[tuple[int, Span]],
    topology: Topology,
    *,
    end_s: float | None = None,
    end_rank: int | None = None,
    cut_short: bool = False,
) -> CriticalPath:
    """Return the path to *end_s* on *end_rank*; by default to the last event on any node."""
    walk = _Walk(spans, topology)
    if end_rank is None:
        end_rank = max(walk.events, key=lambda rank: (walk.ends[rank][-1], -rank), default=0)
    if end_s is None:
        end_s = walk.ends[end_rank][-1] if walk.events.get(end_rank) else 0.0
    legs = list(walk.back(end_rank, end_s))
    return CriticalPath(tuple(reversed(legs)), end_s, cut_short)


class _Walk:
    def __init__(self, spans: Sequence[tuple[int, Span]], topology: Topology) -> None:
        self._topology, self._names = topology, topology.workers
        self._sends: dict[tuple[int, int, str], list[Span]] = defaultdict(list)
        self._number: dict[tuple[int, Span], int] = {}
        received: Counter[tuple[int, int, str]] = Counter()
        self.events: dict[int, list[Span]] = defaultdict(list)
        for rank, span in sorted(spans, key=lambda found: (found[1].end_s, found[1].start_s)):
            if span.kind == "send":
                self._sends[rank, span.peer, span.tag].append(span)
            elif span.kind == "recv":
                key = (span.peer, rank, span.tag)
                self._number[rank, span] = received[key]
                received[key] += 1
            if span.end_s - span.start_s > 2 * GRAIN_S:  # an event without duration delays nothing
                self.events[rank].append(span)
        self.ends = {rank: [span.end_s for span in found] for rank, found in self.events.items()}
        for found in self._sends.values():
            found.sort(key=lambda span: span.start_s)
        sends = [(self._names[rank], self._names[s.peer], s) for rank, s in spans if s.kind == "send"]
        self._carried = CarriedBytes(topology, (SentBytes(a, b, s.start_s, s.end_s, s.size_bytes) for a, b, s in sends))

    def back(self, rank: int, time_s: float) -> Iterator[PathLeg]:
        """Yield the legs, the last first, from *rank* at *time_s* back to the start."""
        while time_s > GRAIN_S:
            span = self._waited_for(rank, time_s)
            until_s = span.end_s if span is not None else 0.0
            if until_s < time_s - GRAIN_S:
                yield PathLeg("idle", self._names[rank], until_s, time_s)
                time_s = until_s
                continue
            assert span is not None, "without a span the way has ended"
            if span.kind == "compute":
                yield PathLeg("compute", self._names[rank], span.start_s, time_s)
                time_s = span.start_s
                continue
            source, start_s = (rank, span.start_s) if span.kind == "send" else self._sender(rank, span)
            ends = (source, span.peer if span.kind == "send" else rank)
            yield from self._travel(*ends, start_s, time_s, arrived=span.kind == "recv")
            rank, time_s = source, start_s

    def _waited_for(self, rank: int, time_s: float) -> Span | None:
        """Return the span that ended last on *rank* by *time_s*."""
        ends = self.ends.get(rank, [])
        last = bisect_right(ends, time_s + GRAIN_S) - 1
        if last < 0:
            return None
        at_once = self.events[rank][bisect_left(ends, ends[last] - GRAIN_S, hi=last) : last + 1]
        return max(reversed(at_once), key=lambda span: _ORDER[span.kind])

    def _sender(self, rank: int, span: Span) -> tuple[int, float]:
        """Return (sender, start of the send) of *span*'s message; the receiver itself if the trace lacks it."""
        sends, number = self._sends.get((span.peer, rank, span.tag), []), self._number[rank, span]
        # Messages of one tag arrive in the order of sending; a send without a recorded end shifts them.
        before = [send for send in reversed(sends) if send.end_s <= span.end_s]
        for send in [*sends[number : number + 1], *before[:1]]:
            if send.start_s < span.end_s - GRAIN_S:
                return span.peer, send.start_s
        return rank, span.start_s

    def _travel(self, source: int, target: int, start_s: float, end_s: float, *, arrived: bool) -> Iterator[PathLeg]:
        """Yield the legs of a message: each link's latency if it *arrived*, the rest at the busiest carrier."""
        a, b = self._names[source], self._names[target]
        if source == target:
            yield PathLeg("idle", a, start_s, end_s)
            return
        hops = self._topology.route(a, b) if arrived else ()
        whole_s = sum(hop.link.latency_s for hop in hops)
        # A message recorded as received before it could have arrived has only latency.
        scale = min(1.0, (end_s - start_s) / whole_s) if whole_s else 0.0
        time_s = end_s
        for hop in reversed(hops):
            spent_s = hop.link.latency_s * scale
            if spent_s:
                yield PathLeg("latency", hop.link.name, time_s - spent_s, time_s, (a, b))
            time_s -= spent_s
        carrier = self._carried.busiest(a, b, start_s, time_s)
        if carrier is not None and time_s > start_s:
            yield PathLeg(carrier.kind, carrier.name, start_s, time_s, (a, b))


class SentBytes(NamedTuple):
    """*size_bytes* sent from node *source* to *target* between these times."""

    source: str
    target: str
    start_s: float
    end_s: float
    size_bytes: int


class LinkCarrier(NamedTuple):
    """A link or a node's "nic" (*kind*), with the *name* of the link or node; carriers of one *lane* share its rate."""

    kind: Literal["link", "nic"]
    name: str
    lane: str
    bandwidth_Bps: float


class CarriedBytes:
    """The bytes that each carrier had carried by any time. Messages are assumed to flow evenly from start to end."""

    def __init__(self, topology: Topology, messages: Iterable[SentBytes]) -> None:
        self._topology = topology
        self._ways: dict[tuple[str, str], list[LinkCarrier]] = {}
        flows: dict[str, list[tuple[float, float, int]]] = defaultdict(list)
        for message in messages:
            for carrier in self.way(message.source, message.target):
                flow = (message.start_s, max(message.end_s, message.start_s + 1e-9), message.size_bytes)
                flows[f"{carrier.kind} {carrier.lane}"].append(flow)
        self._curves = {name: _curve(found) for name, found in flows.items()}

    def way(self, source: str, target: str) -> list[LinkCarrier]:
        """Return everything that a message from *source* to *target* passes: links in order, then the nodes' own."""
        if (source, target) not in self._ways:
            way = self._ways[source, target] = []
            for hop in self._topology.route(source, target):
                link = hop.link
                shared = link.medium or (link.name if link.duplex == "half" else None)
                way.append(LinkCarrier("link", link.name, shared or f"{link.name} {hop.source}", link.bandwidth_Bps))
            for name in (source, target):
                own_Bps = self._topology.nodes[name].host_bandwidth_Bps
                if np.isfinite(own_Bps):
                    way.append(LinkCarrier("nic", name, name, own_Bps))
        return self._ways[source, target]

    def busiest(self, source: str, target: str, start_s: float, end_s: float) -> LinkCarrier | None:
        """Return the carrier between two nodes with the highest load in that time; ties go to the first."""
        way = self.way(source, target)
        loads = [self._bytes(carrier, start_s, end_s) / carrier.bandwidth_Bps for carrier in way]
        # Links with equal load and bandwidth are equally busy, up to rounding.
        return next((way[i] for i, load in enumerate(loads) if load >= max(loads) * (1 - 1e-9)), None)

    def _bytes(self, carrier: LinkCarrier, start_s: float, end_s: float) -> float:
        name = f"{carrier.kind} {carrier.lane}"
        if name not in self._curves:
            return 0.0
        first, last = np.interp([start_s, end_s], *self._curves[name])
        return float(last - first)


def _curve(flows: Sequence[tuple[float, float, int]]) -> tuple[Floats, Floats]:
    """Return (times, bytes carried by then) of *flows*, given as (start, end, bytes); linear between times."""
    starts, ends, sizes = (np.array(part, dtype=np.float64) for part in zip(*flows, strict=True))
    rates = sizes / (ends - starts)
    times = np.concatenate([starts, ends])
    order = np.argsort(times, kind="stable")
    times, changes = times[order], np.concatenate([rates, -rates])[order]
    flowing = np.cumsum(changes)[:-1] * np.diff(times)
    return times, np.concatenate([[0.0], np.cumsum(flowing)])
