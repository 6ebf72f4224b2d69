"""A star of plain links: the paths between any two of its workers, for all workers at once."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from simcluster.topology import Link, Topology
    from simcluster_backends.sim.network.models import NetworkModel, Spoke

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]


class Spokes:
    """All *spokes* of a star, by rank: the channels in both directions, and the latencies."""

    def __init__(self, model: NetworkModel, spokes: Sequence[Spoke]) -> None:
        self._model = model
        self.up, self.down = [spoke.up for spoke in spokes], [spoke.down for spoke in spokes]
        self._latencies_s = np.array([spoke.link.latency_s for spoke in spokes])

    def wires(self, to: Ints) -> tuple[Floats, Floats]:
        """Return the rates and latencies of messages from each rank r to rank *to[r]*.

        A rate is that of a message alone on its path. The numbers equal those of NetworkModel.lay
        and FairShare.join for one pair, bit for bit.
        """
        latencies_s = self._latencies_s + self._latencies_s[to]
        bounds_Bps = np.full(len(to), inf)
        np.divide(self._model.window_bytes, 2.0 * latencies_s, out=bounds_Bps, where=latencies_s > 0)
        up_Bps = np.array([channel.capacity_Bps for channel in self.up])
        down_Bps = np.array([channel.capacity_Bps for channel in self.down])
        rates_Bps = np.minimum(np.minimum(bounds_Bps, up_Bps), down_Bps[to])
        return rates_Bps, self._model.latency_factor * latencies_s


def spoke_links(topology: Topology) -> dict[str, Link] | None:
    """Return the link of each worker of a star, by the worker's name.

    Return None for another topology, or if more than bandwidth and latency affects a message.
    """
    nodes = topology.nodes
    links = topology.links
    hubs = [name for name in nodes if nodes[name].device is None]
    if len(hubs) != 1 or len(links) != len(nodes) - 1 or topology.paths or topology.background:
        return None
    found = {link.a if link.b == hubs[0] else link.b: link for link in links if hubs[0] in (link.a, link.b)}
    if set(found) != set(topology.workers) or not all(map(_is_plain, links)):
        return None
    for node in nodes.values():
        if node.send_overhead_s or node.recv_overhead_s or node.machine is not None or node.host_bandwidth_Bps < inf:
            return None
    return found


def _is_plain(link: Link) -> bool:
    others = (link.ack_share, link.jitter, link.loss, link.trace, link.latency_trace, link.background, link.medium)
    return link.duplex == "full" and not any(others)
