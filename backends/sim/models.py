"""How a route over links becomes a flow's wish for bandwidth: the ideal fluid, and SimGrid's model of TCP.

This file knows links, channels and the published constants. It must not know time, nodes or messages.

`maxmin`: every flow shares alike, and latency only delays. `lv08` (Velho and Legrand, "Accuracy study and improvement
of network simulation in the SimGrid framework", SIMUTools 2009): what TCP makes of a link. 97 % of its bandwidth
carries payload; slow start is paid as 13.01 latencies; a flow's share is inverse to its latency, with the time of 20537
bytes on each link added to it; and a window of 4 MiB over twice the latency bounds it.

In both, acknowledgements take what a link's `ack_share` says, which is nothing unless a topology gives one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, inf

from backends.sim.fairshare import Channel
from backends.sim.network import Route
from simcluster.topology import Hop, Link


@dataclass(frozen=True)
class NetworkModel:
    """*fair_bytes* is None where sharing does not depend on the round trip; *window_bytes* is inf for no window."""

    bandwidth_factor: float = 1.0
    latency_factor: float = 1.0
    fair_bytes: float | None = None
    window_bytes: float = inf

    def lay(self, hops: Sequence[Hop], channels: Channels) -> tuple[Route, float]:
        """The route over *hops*, and the seconds that its latency delays a message."""
        latency_s = fsum(hop.link.latency_s for hop in hops)
        uses: dict[Channel, float] = {}
        bounds_Bps = [self.bandwidth_factor * hop.link.bandwidth_Bps for hop in hops if hop.link.duplex == "free"]
        for hop in hops:
            if hop.link.duplex != "free":
                channel = channels.of(hop.link, hop.forward)
                uses[channel] = uses.get(channel, 0.0) + 1.0
                if hop.link.ack_share:
                    back = channels.of(hop.link, not hop.forward)
                    uses[back] = uses.get(back, 0.0) + hop.link.ack_share
        weight = 1.0
        if latency_s > 0:  # without any, SimGrid shares alike
            if self.fair_bytes is not None:
                weight = 1.0 / (latency_s + fsum(self.fair_bytes / hop.link.bandwidth_Bps for hop in hops))
            bounds_Bps.append(self.window_bytes / (2.0 * latency_s))
        route = Route(tuple(uses.items()), min(bounds_Bps, default=inf), weight)
        return route, self.latency_factor * latency_s


MAXMIN = NetworkModel()
LV08 = NetworkModel(bandwidth_factor=0.97, latency_factor=13.01, fair_bytes=20537.0, window_bytes=4194304.0)
MODELS = {"maxmin": MAXMIN, "lv08": LV08}


class Channels:
    """The channels of one network, made when first crossed."""

    def __init__(self, model: NetworkModel) -> None:
        self._model = model
        self._channels: dict[tuple[str, bool], Channel] = {}

    def of(self, link: Link, forward: bool) -> Channel:
        """One direction of *link*; of a half-duplex one, where both are one medium, the whole."""
        key = (link.name, forward or link.duplex == "half")
        if key not in self._channels:
            self._channels[key] = Channel(link.name, self._model.bandwidth_factor * link.bandwidth_Bps)
        return self._channels[key]
