"""The spread of measured numbers: by which factors each of them was off its median in each round of a calibration.

This file knows factors and documents. It must not know how anything was measured, nor what runs on the cluster.

Entry i of every list is of the same round, so numbers that rise together do so in a replica, too.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from simcluster.topology.model.profile import profile_block
from simcluster.units import write_bandwidth, write_latency

if TYPE_CHECKING:
    from simcluster.topology.model.model import Link, Node, Topology

Factors: TypeAlias = tuple[float, ...]

LINK_SPREAD_KEYS = ("bandwidth", "latency", "ack_share")
NODE_SPREAD_KEYS = ("send_overhead", "recv_overhead", "profile")
MOST_ACK_SHARE = 0.99

LEAST_LATENCY_S = 1e-12
"""Less is what rounding leaves of nothing."""


@dataclass(frozen=True)
class Spread:
    """*factors* by key, one for each round; a number without any does not vary."""

    factors: tuple[tuple[str, Factors], ...] = ()

    def factor(self, key: str, number: int) -> float:
        """Return the factor of *key* in round *number*."""
        return next((found[number] for name, found in self.factors if name == key), 1.0)

    @property
    def rounds(self) -> int:
        """How many rounds the lists have; 0 if there are none."""
        return len(self.factors[0][1]) if self.factors else 0


NONE = Spread()
"""Of a number that was not calibrated."""


def spread_block(measured: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Return *measured* as a part's `spread` in a topology file, without numbers that do not vary."""
    written = {key: [float(f"{factor:.5g}") for factor in factors] for key, factors in measured.items()}
    return {key: factors for key, factors in written.items() if any(factor != 1.0 for factor in factors)}


def rounds_of(topology: Topology) -> int:
    """Return how many rounds the spread of *topology* has; 0 for one that was not calibrated."""
    spreads = [*(link.spread for link in topology.links), *(node.spread for node in topology.nodes.values())]
    return max(len(topology.misfit), len(topology.startup_s), *(spread.rounds for spread in spreads))


def replica(topology: Topology, number: int) -> dict[str, Any]:
    """Return the document of *topology* with the numbers of round *number*, and without any spread."""
    document: dict[str, Any] = copy.deepcopy(dict(topology.document))
    for key in ("misfit", "startup"):
        document.pop(key, None)
    for link, block in zip(topology.links, document.get("links") or [], strict=True):
        if block.pop("spread", None):
            block |= _link(link, number)
    for name, node in topology.nodes.items():
        if (document["nodes"][name] or {}).pop("spread", None):
            document["nodes"][name] |= _node(node, number)
    return document


def _link(link: Link, number: int) -> dict[str, Any]:
    latency_s = link.latency_s * link.spread.factor("latency", number)
    keys: dict[str, Any] = {
        "bandwidth": write_bandwidth(link.bandwidth_Bps * link.spread.factor("bandwidth", number)),
        "latency": write_latency(latency_s if latency_s >= LEAST_LATENCY_S else 0.0),
    }
    if link.ack_share:
        keys["ack_share"] = min(MOST_ACK_SHARE, link.ack_share * link.spread.factor("ack_share", number))
    return keys


def _node(node: Node, number: int) -> dict[str, Any]:
    seconds = {"send_overhead": node.send_overhead_s, "recv_overhead": node.recv_overhead_s}
    keys: dict[str, Any] = {
        key: write_latency(value * node.spread.factor(key, number)) for key, value in seconds.items() if value
    }
    if node.device is not None and node.device.profile is not None:
        factor = node.spread.factor("profile", number)
        kinds = node.device.profile.kinds
        scaled = {kind: {int(flops): value * factor for flops, value in points} for kind, points in kinds}
        keys["profile"] = profile_block(scaled)
    return keys
