"""Turn routes into demands for bandwidth, as in an ideal fluid or in SimGrid's model of TCP.

`maxmin`: all flows have equal shares, and latency only delays. `lv08` (Velho and Legrand, "Accuracy study and
improvement of network simulation in the SimGrid framework", SIMUTools 2009): TCP over a link. 97 % of the bandwidth
carries payload; slow start costs 13.01 latencies; a flow's share is inverse to its latency plus the time of 20537 bytes
on each link; and a window of 4 MiB over twice the latency bounds it.

In both, acknowledgements use a link's `ack_share`, and lost packets bound a flow (`losses`). Stations on one medium
share its air time with equal bytes, so the slowest slows all (Heusse, Rousseau, Berger-Sabbatel, Duda, "Performance
anomaly of 802.11b", INFOCOM 2003).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, inf
from typing import NamedTuple

from simcluster.topology import Hop, Link, Node
from simcluster.topology.model.compute import Machine
from simcluster.topology.model.link import merged
from simcluster_backends.sim.network.fairshare import Channel
from simcluster_backends.sim.network.flows import FlowRoute
from simcluster_backends.sim.network.losses import rate_bound_Bps, together


class Spoke(NamedTuple):
    """The *link* of a worker to the hub of a star, and its channels."""

    link: Link
    up: Channel
    down: Channel


@dataclass(frozen=True)
class NetworkModel:
    """The parameters of a model: how links become bandwidth, latency, shares and bounds.

    *fair_bytes* is None if shares ignore the round trip; *window_bytes* is inf for no window.
    """

    bandwidth_factor: float = 1.0
    latency_factor: float = 1.0
    fair_bytes: float | None = None
    window_bytes: float = inf

    def latency_of(self, links: Iterable[Link]) -> float:
        """Return the seconds by which the latencies of *links* delay a message."""
        return self.latency_factor * fsum(link.latency_s for link in links)

    def lay(self, hops: Sequence[Hop], channels: Channels, ends: Sequence[Node] = ()) -> tuple[FlowRoute, float]:
        """Return the route over *hops* between *ends*, and the seconds by which latency delays a message."""
        links = merged(hops)
        latency_s = fsum([link.latency_s for link in links])
        bound_Bps = inf
        for link, _, share in hops:
            if link.duplex == "free":
                bound_Bps = min(bound_Bps, self.bandwidth_factor * link.bandwidth_Bps / share)
        if losses := [link.loss for link in links if link.loss]:
            bound_Bps = min(bound_Bps, rate_bound_Bps(together(losses), 2.0 * latency_s))
        uses = tuple(channels.used(hops, ends).items())
        return self._route(uses, bound_Bps, latency_s, links)

    def over_hub(self, first: Spoke, last: Spoke) -> tuple[FlowRoute, float]:
        """Return what `lay` returns for two links of a star with only bandwidth and latency."""
        latency_s = first.link.latency_s + last.link.latency_s
        return self._route(((first.up, 1.0), (last.down, 1.0)), inf, latency_s, (first.link, last.link))

    def _route(
        self, uses: Sequence[tuple[Channel, float]], bound_Bps: float, latency_s: float, links: Sequence[Link]
    ) -> tuple[FlowRoute, float]:
        weight = 1.0
        if latency_s > 0:  # with zero latency, SimGrid shares equally
            if self.fair_bytes is not None:
                weight = 1.0 / (latency_s + fsum([self.fair_bytes / link.bandwidth_Bps for link in links]))
            bound_Bps = min(bound_Bps, self.window_bytes / (2.0 * latency_s))
        return FlowRoute(uses, bound_Bps, weight), self.latency_factor * latency_s


MODELS = {
    "maxmin": NetworkModel(),
    "lv08": NetworkModel(bandwidth_factor=0.97, latency_factor=13.01, fair_bytes=20537.0, window_bytes=4194304.0),
}


class Channels:
    """The channels of one network, created on first use."""

    def __init__(self, model: NetworkModel, machines: Mapping[str, Machine]) -> None:
        self._factor = model.bandwidth_factor
        self._machines = machines
        self._channels: dict[tuple[str, object], Channel] = {}

    def of(self, link: Link, forward: bool) -> Channel:
        """Return the channel of one direction of *link*; half duplex has one channel for both."""
        return self._channel(link.name, forward or link.duplex == "half", self._factor * link.bandwidth_Bps)

    def _channel(self, name: str, kind: object, capacity_Bps: float) -> Channel:
        channel = self._channels.get((name, kind))
        if channel is None:
            channel = self._channels[name, kind] = Channel(name, capacity_Bps)
        return channel

    def cores(self, machine: str) -> Channel:
        """Return the channel of *machine*'s cores; its capacity is in core seconds per second."""
        return self._channel(machine, "cores", self._machines[machine].cores)

    def used(self, hops: Sequence[Hop], ends: Sequence[Node]) -> dict[Channel, float]:
        """Return the share of a flow's rate that counts on each channel of its path over *hops* between *ends*."""
        uses: dict[Channel, float] = {}

        def use(channel: Channel, share: float) -> None:
            uses[channel] = uses.get(channel, 0.0) + share

        for link, forward, part in hops:
            if link.duplex != "free":
                use(self.of(link, forward), part)
                if link.ack_share:
                    use(self.of(link, not forward), part * link.ack_share)
            if link.medium is not None:
                # A medium has 1 s of air time per second, of which a byte takes 1 / bandwidth of its link.
                air = self._channel(link.medium, "medium", self._factor)
                use(air, part * (1.0 + link.ack_share) / link.bandwidth_Bps)
        for node in ends:
            if node.host_bandwidth_Bps < inf:  # one limit for sending and receiving together
                use(self._channel(node.name, "host", node.host_bandwidth_Bps), 1.0)
        if (machine := _shared(ends)) is not None:
            # At full speed, the bytes keep a core busy at each end.
            use(self.cores(machine), 2.0 / min(link.bandwidth_Bps for link in merged(hops)))
        return uses


def _shared(ends: Sequence[Node]) -> str | None:
    """Return the machine that both *ends* share, if any."""
    machines = {node.machine for node in ends}
    return machines.pop() if len(machines) == 1 else None
