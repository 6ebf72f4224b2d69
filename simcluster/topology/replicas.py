"""Replicas of a calibrated topology: each is its document with one calibration round's numbers."""

from __future__ import annotations

import copy
from typing import Any

from simcluster.topology.model.device import profile_block
from simcluster.topology.model.model import Node, Topology
from simcluster.units import write_bandwidth, write_latency

MOST_ACK_SHARE = 0.99
"""The largest `ack_share` of a link in a replica: acknowledgements must not fill the link."""

LEAST_LATENCY_S = 1e-12
"""A latency below this is rounding error around zero, and counts as zero."""


def rounds_of(topology: Topology) -> int:
    """Return the number of calibration rounds of *topology*; 0 if it was not calibrated."""
    spreads = [*(link.spread for link in topology.links), *(node.spread for node in topology.nodes.values())]
    return max(len(topology.misfit), len(topology.startup_s), *(spread.rounds for spread in spreads))


def replica(topology: Topology, number: int) -> dict[str, Any]:
    """Return the document of *topology* with the numbers of calibration round *number*."""
    document: dict[str, Any] = copy.deepcopy(dict(topology.document))
    for key in ("misfit", "startup"):
        document.pop(key, None)
    for link, block in zip(topology.links, document.get("links") or [], strict=True):
        if block.pop("spread", None):
            latency_s = link.latency_s * link.spread.factor("latency", number)
            block["bandwidth"] = write_bandwidth(link.bandwidth_Bps * link.spread.factor("bandwidth", number))
            block["latency"] = write_latency(latency_s if latency_s >= LEAST_LATENCY_S else 0.0)
            if link.ack_share:
                block["ack_share"] = min(MOST_ACK_SHARE, link.ack_share * link.spread.factor("ack_share", number))
    for name, node in topology.nodes.items():
        if (document["nodes"][name] or {}).pop("spread", None):
            document["nodes"][name] |= _node(node, number, document["nodes"][name])
    return document


def _node(node: Node, number: int, block: dict[str, Any]) -> dict[str, Any]:
    seconds = {"send_overhead": node.send_overhead_s, "recv_overhead": node.recv_overhead_s}
    factor = node.spread.factor
    keys: dict[str, Any] = {key: write_latency(value * factor(key, number)) for key, value in seconds.items() if value}
    if node.device is not None and node.device.profile is not None:
        slower = factor("profile", number)
        kinds = node.device.profile.kinds
        slowed = {kind: {int(flops): value * slower for flops, value in points} for kind, points in kinds}
        profile = {"profile": profile_block(slowed)}
        keys |= profile if node.device.cpu is None else {"accelerator": (block.get("accelerator") or {}) | profile}
    return keys
