"""The load of everything that a message passes in flight: links, shared media, and nodes' bandwidth.

Messages are assumed to flow evenly from start to end, which is all that a trace can tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simcluster.topology import Topology

Floats = NDArray[np.float64]


class Sent(NamedTuple):
    """*size_bytes* sent from node *source* to *target* between these times."""

    source: str
    target: str
    start_s: float
    end_s: float
    size_bytes: int


class Carrier(NamedTuple):
    """A link or a node's "nic" (*kind*), with the *name* of the link or node; carriers of one *lane* share its rate."""

    kind: str
    name: str
    lane: str
    bandwidth_Bps: float


def carriers(topology: Topology, source: str, target: str) -> list[Carrier]:
    """Return everything that a message from *source* to *target* passes, in order."""
    nics = [
        Carrier("nic", name, name, topology.nodes[name].host_bandwidth_Bps)
        for name in (source, target)
        if np.isfinite(topology.nodes[name].host_bandwidth_Bps)
    ]
    links = []
    for hop in topology.route(source, target):
        link = hop.link
        both_ways = link.medium or link.name
        lane = both_ways if link.duplex == "half" or link.medium else f"{link.name} {hop.source}"
        links.append(Carrier("link", link.name, lane, link.bandwidth_Bps))
    return [*links, *nics]


class Carried:
    """The bytes that each carrier had carried by any time."""

    def __init__(self, topology: Topology, messages: Iterable[Sent]) -> None:
        self._topology = topology
        self._ways: dict[tuple[str, str], list[Carrier]] = {}
        flows: dict[str, list[tuple[float, float, int]]] = {}
        for message in messages:
            for carrier in self.way(message.source, message.target):
                flow = (message.start_s, max(message.end_s, message.start_s + 1e-9), message.size_bytes)
                flows.setdefault(f"{carrier.kind} {carrier.lane}", []).append(flow)
        self._curves = {name: _curve(found) for name, found in flows.items()}

    def way(self, source: str, target: str) -> Sequence[Carrier]:
        key = (source, target)
        if key not in self._ways:
            self._ways[key] = carriers(self._topology, source, target)
        return self._ways[key]

    def busiest(self, source: str, target: str, start_s: float, end_s: float) -> Carrier | None:
        """Return the carrier between two nodes with the highest load in that time; ties go to the first."""
        way = self.way(source, target)
        loads = [self._bytes(carrier, start_s, end_s) / carrier.bandwidth_Bps for carrier in way]
        # Links with equal load and bandwidth are equally busy, up to rounding.
        return next((way[i] for i, load in enumerate(loads) if load >= max(loads) * (1 - 1e-9)), None)

    def _bytes(self, carrier: Carrier, start_s: float, end_s: float) -> float:
        curve = self._curves.get(f"{carrier.kind} {carrier.lane}")
        if curve is None:
            return 0.0
        times_s, bytes_by = curve
        first, last = np.interp([start_s, end_s], times_s, bytes_by)
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
