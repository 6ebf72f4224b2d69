"""A star of plain links: the paths between any two of its workers, for all workers at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from simcluster.topology import Hop

if TYPE_CHECKING:
    from simcluster.topology import Link, Topology
    from simcluster_backends.sim.network.channels import Channel
    from simcluster_backends.sim.network.models import NetworkModel

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class Spokes:
    """One link from each worker to the hub, by rank: the channels in both directions, and the latency."""

    model: NetworkModel
    up: list[Channel]
    down: list[Channel]
    latencies_s: Floats

    def wires(self, to: Ints) -> tuple[Floats, Floats]:
        """Return (rates of a message alone on its path, latencies) from each rank r to rank *to[r]*.

        They have the bits that NetworkModel.lay and FairShare.join find for one pair.
        """
        latencies_s = self.latencies_s + self.latencies_s[to]
        bounds_Bps = np.full(len(to), inf)
        np.divide(self.model.window_bytes, 2.0 * latencies_s, out=bounds_Bps, where=latencies_s > 0)
        up_Bps = np.array([channel.capacity_Bps for channel in self.up])
        down_Bps = np.array([channel.capacity_Bps for channel in self.down])
        rates_Bps = np.minimum(np.minimum(bounds_Bps, up_Bps), down_Bps[to])
        return rates_Bps, self.model.latency_factor * latencies_s


def spokes_of(topology: Topology, model: NetworkModel, channel_of: Callable[[Link, bool], Channel]) -> Spokes | None:
    """Return the spokes of *topology*; None if it has another form, or more than bandwidth and latency matters."""
    if (found := spoke_links(topology)) is None:
        return None
    hops = [Hop(found[name], found[name].a == name) for name in topology.workers]
    up = [channel_of(hop.link, hop.forward) for hop in hops]
    down = [channel_of(hop.link, not hop.forward) for hop in hops]
    return Spokes(model, up, down, np.array([hop.link.latency_s for hop in hops]))


def spoke_links(topology: Topology) -> dict[str, Link] | None:
    """Return the link of each worker, as `spokes_of` finds them."""
    nodes, links = topology.nodes, topology.links
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
    others = (link.ack_share, link.jitter, link.loss, link.trace, link.background, link.medium)
    return link.duplex == "full" and not any(others)
