"""How busy everything on the way was while a message travelled: links, the air they share, and nodes' own bandwidth.

What was sent is taken to have flowed evenly while it was under way, which is what a trace can tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simcluster.topology import Topology

Floats = NDArray[np.float64]


class Sent(NamedTuple):
    """*size_bytes* travelled from node *source* to *target* between these times."""

    source: str
    target: str
    start_s: float
    end_s: float
    size_bytes: int


class Carrier(NamedTuple):
    """What carries: *kind* is "link" or "nic", *name* the link's or the node's; *lane* tells what shares its rate."""

    kind: str
    name: str
    lane: str
    bandwidth_Bps: float


def carriers(topology: Topology, source: str, target: str) -> list[Carrier]:
    """All that a message from *source* to *target* goes through, in order."""
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
    """What every carrier had carried by any time."""

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
        """Which carrier between two nodes had most to do for its bandwidth in that time; the first of several."""
        way = self.way(source, target)
        loads = [self._bytes(carrier, start_s, end_s) / carrier.bandwidth_Bps for carrier in way]
        # Links that carry the same at the same bandwidth are as busy as each other, but for the last bits of a sum.
        return next((way[i] for i, load in enumerate(loads) if load >= max(loads) * (1 - 1e-9)), None)

    def _bytes(self, carrier: Carrier, start_s: float, end_s: float) -> float:
        curve = self._curves.get(f"{carrier.kind} {carrier.lane}")
        if curve is None:
            return 0.0
        times_s, bytes_by = curve
        first, last = np.interp([start_s, end_s], times_s, bytes_by)
        return float(last - first)


def _curve(flows: Sequence[tuple[float, float, int]]) -> tuple[Floats, Floats]:
    """(times, bytes carried by then) of *flows* as (start, end, bytes), straight between times."""
    starts, ends, sizes = (np.array(part, dtype=np.float64) for part in zip(*flows, strict=True))
    rates = sizes / (ends - starts)
    times = np.concatenate([starts, ends])
    order = np.argsort(times, kind="stable")
    times, changes = times[order], np.concatenate([rates, -rates])[order]
    flowing = np.cumsum(changes)[:-1] * np.diff(times)
    return times, np.concatenate([[0.0], np.cumsum(flowing)])
