"""Find the critical path: walk back from a run's end and find what each moment waited for.

Each activity of a node (work, a receive or a send) starts when another activity on the node ended.
A receive that the node waited for leads to the sender, at the time when the send began. So the walk
back never branches, and its legs cover the time from end to start without a gap.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simcluster.runs.spans import Span
from simcluster.topology import Topology
from simcluster.topology.model.link import merged
from simcluster.topology.model.routing import PACKET_BYTES

Floats = NDArray[np.float64]
LegKind = Literal["compute", "link", "nic", "latency", "idle"]

GRAIN_S = 1.5e-9
"""Limit below which two times count as equal: traces have a resolution of a nanosecond."""

_ORDER = {"compute": 2, "recv": 1, "send": 0}
"""Kind of event -> its priority: among events that end together, the run waited for the highest."""


class PathLeg(NamedTuple):
    """An interval, *start_s* to *end_s*, in which the run waited for *where*, a node or a link.

    The *kind* says what took the time: a device at work, the bandwidth of a link or of a node's
    network card, or a link's latency; "idle" stands for something that the trace does not show,
    such as a timer. *between* is (source, target) of the message, if any.
    """

    kind: LegKind
    where: str
    start_s: float
    end_s: float
    between: tuple[str, str] | None = None


class PathPart(NamedTuple):
    """All legs with the same *kind* and *where*; they take *share* of the path.

    *between* is the pair of nodes whose messages took longest.
    """

    kind: LegKind
    where: str
    seconds: float
    share: float
    between: tuple[str, str] | None

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "where": self.where, "seconds": self.seconds, "share": self.share}


@dataclass(frozen=True)
class CriticalPath:
    """The *legs* of the critical path, in order of time, from the start to *end_s*.

    *cut_short* says whether the trace covers only part of the run.
    """

    legs: tuple[PathLeg, ...]
    end_s: float
    cut_short: bool = False

    @cached_property
    def parts(self) -> list[PathPart]:
        """The parts of the path, the longest first."""
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
    """Return the critical path that ends at *end_s* on *end_rank*.

    If *end_rank* is None, the path ends on the node with the last event; if *end_s* is None, at
    that node's last event. *spans* are (rank, span). *cut_short* says whether they cover only part
    of the run.
    """
    walk = _Walk(spans, topology)
    if end_rank is None:
        end_rank = max(walk.events, key=lambda rank: (walk.ends[rank][-1], -rank), default=0)
    if end_s is None:
        end_s = walk.ends[end_rank][-1] if walk.events.get(end_rank) else 0.0
    legs = list(walk.back(end_rank, end_s))
    return CriticalPath(tuple(reversed(legs)), end_s, cut_short)


class _Walk:
    """The events of a run, with indices for the walk back."""

    def __init__(self, spans: Sequence[tuple[int, Span]], topology: Topology) -> None:
        self._topology = topology
        self._names = topology.workers
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
            if span.end_s - span.start_s > 2 * GRAIN_S:  # An event without duration delays nothing.
                self.events[rank].append(span)
        self.ends = {rank: [span.end_s for span in found] for rank, found in self.events.items()}
        for found in self._sends.values():
            found.sort(key=lambda span: span.start_s)
        self._carried = CarriedBytes(topology, [(rank, span) for rank, span in spans if span.kind == "send"])

    def back(self, rank: int, time_s: float) -> Iterator[PathLeg]:
        """Yield the legs from *rank* at *time_s* back to the start, the last leg first."""
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
            yield from self._travel(*ends, span.size_bytes, start_s, time_s, arrived=span.kind == "recv")
            rank, time_s = source, start_s

    def _waited_for(self, rank: int, time_s: float) -> Span | None:
        """Return the last span on *rank* that had ended by *time_s*; None if there is none."""
        ends = self.ends.get(rank, [])
        last = bisect_right(ends, time_s + GRAIN_S) - 1
        if last < 0:
            return None
        at_once = self.events[rank][bisect_left(ends, ends[last] - GRAIN_S, hi=last) : last + 1]
        return max(reversed(at_once), key=lambda span: _ORDER[span.kind])

    def _sender(self, rank: int, span: Span) -> tuple[int, float]:
        """Return (sender, start of the send) of the message that *span* received.

        If the trace lacks the send, return the receiver itself and the start of *span*.
        """
        sends = self._sends.get((span.peer, rank, span.tag), [])
        number = self._number[rank, span]
        # Messages of one tag arrive in the order of sending. But if a send has no recorded end, the
        # numbers of later sends are too low.
        before = [send for send in reversed(sends) if send.end_s <= span.end_s]
        for send in [*sends[number : number + 1], *before[:1]]:
            if send.start_s < span.end_s - GRAIN_S:
                return span.peer, send.start_s
        return rank, span.start_s

    def _travel(
        self, source: int, target: int, size_bytes: int, start_s: float, end_s: float, *, arrived: bool
    ) -> Iterator[PathLeg]:
        """Yield a message's legs, the last leg first: links' latencies, then the busiest carrier.

        A message that has left but not *arrived* has no latency yet.
        """
        a, b = self._names[source], self._names[target]
        if source == target:
            yield PathLeg("idle", a, start_s, end_s)
            return
        links = merged(self._topology.route(a, b, size_bytes)) if arrived else ()
        whole_s = sum(link.latency_s for link in links)
        # If a message was received sooner than the latency allows, latency takes all of its time.
        scale = min(1.0, (end_s - start_s) / whole_s) if whole_s else 0.0
        time_s = end_s
        for link in reversed(links):
            spent_s = link.latency_s * scale
            if spent_s:
                yield PathLeg("latency", link.name, time_s - spent_s, time_s, (a, b))
            time_s -= spent_s
        carrier = self._carried.busiest(a, b, start_s, time_s, size_bytes)
        if carrier is not None and time_s > start_s:
            yield PathLeg(carrier.kind, carrier.name, start_s, time_s, (a, b))


class LinkCarrier(NamedTuple):
    """A link, or the network card ("nic") of the node *name*.

    Messages on the same *lane* share the bandwidth; it carries *share* of a message's bytes.
    """

    kind: Literal["link", "nic"]
    name: str
    lane: tuple[str, bool]
    bandwidth_Bps: float
    share: float = 1.0


class CarriedBytes:
    """The number of bytes that each carrier had carried by any time; *sends* are (rank, span).

    Each message is assumed to flow evenly from its start to its end.
    """

    def __init__(self, topology: Topology, sends: Iterable[tuple[int, Span]]) -> None:
        self._topology = topology
        self._ways: dict[tuple[str, str, float], list[LinkCarrier]] = {}
        flows = defaultdict[tuple[str, tuple[str, bool]], list[tuple[float, float, float]]](list)
        for rank, span in sends:
            for carrier in self.way(topology.workers[rank], topology.workers[span.peer], span.size_bytes):
                flow = (span.start_s, max(span.end_s, span.start_s + 1e-9), span.size_bytes * carrier.share)
                flows[carrier.kind, carrier.lane].append(flow)
        self._curves = {lane: _curve(found) for lane, found in flows.items()}

    def way(self, source: str, target: str, size_bytes: float = PACKET_BYTES) -> list[LinkCarrier]:
        """Return all carriers of a message: the links in order, then the nodes' network cards."""
        key = (source, target, size_bytes if self._topology.parallel == "size" else 0.0)
        if key not in self._ways:
            way = self._ways[key] = []
            for hop in self._topology.route(source, target, size_bytes):
                way.append(LinkCarrier("link", hop.link.name, hop.lane, hop.link.bandwidth_Bps, hop.share))
            for name in (source, target):
                own_Bps = self._topology.nodes[name].host_bandwidth_Bps
                if np.isfinite(own_Bps):
                    way.append(LinkCarrier("nic", name, (name, True), own_Bps))
        return self._ways[key]

    def busiest(
        self, source: str, target: str, start_s: float, end_s: float, size_bytes: float = PACKET_BYTES
    ) -> LinkCarrier | None:
        """Return the carrier of a message of *size_bytes* with the highest load in this time.

        Among equals, return the first; if there are no carriers, return None.
        """
        way = self.way(source, target, size_bytes)
        loads = [self._bytes(carrier, start_s, end_s) / carrier.bandwidth_Bps for carrier in way]
        # Links with equal loads are equally busy, up to rounding.
        return next((way[i] for i, load in enumerate(loads) if load >= max(loads) * (1 - 1e-9)), None)

    def _bytes(self, carrier: LinkCarrier, start_s: float, end_s: float) -> float:
        curve = self._curves.get((carrier.kind, carrier.lane))
        if curve is None:
            return 0.0
        first, last = np.interp([start_s, end_s], *curve)
        return float(last - first)


def _curve(flows: Sequence[tuple[float, float, float]]) -> tuple[Floats, Floats]:
    """Return (times, bytes that *flows* had carried by then); bytes are linear between times.

    A flow is (start, end, bytes).
    """
    starts, ends, sizes = (np.array(part, dtype=np.float64) for part in zip(*flows, strict=True))
    rates = sizes / (ends - starts)
    times = np.concatenate([starts, ends])
    order = np.argsort(times, kind="stable")
    times, changes = times[order], np.concatenate([rates, -rates])[order]
    flowing = np.cumsum(changes)[:-1] * np.diff(times)
    return times, np.concatenate([[0.0], np.cumsum(flowing)])
