"""What there is on the ways of a topology beside bandwidth and latency, made once for a simulation.

This file knows the keys of a topology that say so, and whose stream of randomness is whose. It must not know when any
of it delays a message: that is `rough`, and for plain flows `flows`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import fsum
from typing import TYPE_CHECKING

from backends.sim.jitter import Draw, draws_of
from backends.sim.loop.clock import Clock
from backends.sim.network.conditions import weather_of
from backends.sim.network.flows import Network, Route
from backends.sim.network.losses import Losses, together
from backends.sim.network.models import Channels, NetworkModel
from backends.sim.rough import Roughness
from backends.sim.stages import Host
from simcluster.rng import numpy_stream
from simcluster.topology import Hop

if TYPE_CHECKING:
    import numpy as np

    from backends.sim.network.fairshare import Channel
    from simcluster.topology import Link, Topology

PLAIN = Roughness()


class Surroundings:
    """Made with its own channels; `between` says what two nodes meet."""

    def __init__(self, topology: Topology, seed: int, clock: Clock, network: Network, model: NetworkModel) -> None:
        self._topology, self._seed, self._clock, self._model = topology, seed, clock, model
        self._channels = Channels(model)
        self._weather = weather_of(topology, seed, clock, network, model, self._channels)
        self._hosts = {
            node.name: Host(clock, node.send_overhead_s, node.recv_overhead_s)
            for node in topology.nodes.values()
            if node.send_overhead_s or node.recv_overhead_s
        }
        self._draws: dict[tuple[str, bool], Draw] = {}
        self._lost: dict[tuple[str, str], np.random.Generator] = {}
        self.link_now: Callable[[Hop], Link] = lambda hop: hop.link  # what faults have made of it

    def lay(self, source: str, target: str) -> tuple[Route, float]:
        """The route between two nodes, and the seconds that its latency delays a message."""
        ends = [self._topology.nodes[name] for name in (source, target)]
        return self._model.lay(self._hops(source, target), self._channels, ends)

    def between(self, source: str, target: str) -> Roughness:
        """What messages from *source* to *target* meet; PLAIN for nothing."""
        hops = self._hops(source, target)
        return Roughness(
            self._hosts.get(source),
            self._hosts.get(target),
            tuple(self._draw(hop) for hop in hops if hop.link.jitter is not None),
            self._losses(source, target, hops),
            self._weather,
        )

    def channels(self, link: Link, towards: str | None) -> list[Channel]:
        """Those of both directions of *link*, or of that *towards* one of its ends; none of one that nobody shares."""
        if link.duplex == "free":
            return []
        forwards = [forward for forward in (True, False) if towards in (None, link.b if forward else link.a)]
        return list(dict.fromkeys(self._channels.of(link, forward) for forward in forwards))

    def _hops(self, source: str, target: str) -> list[Hop]:
        return [Hop(self.link_now(hop), hop.forward) for hop in self._topology.route(source, target)]

    def _draw(self, hop: Hop) -> Draw:
        """Both ways of a link have streams of their own; whoever crosses one draws from it."""
        key = (hop.link.name, hop.forward)
        if key not in self._draws:
            assert hop.link.jitter is not None
            random = numpy_stream(self._seed, "jitter", hop.link.name, hop.source)
            self._draws[key] = draws_of(hop.link.jitter, random)
        return self._draws[key]

    def _losses(self, source: str, target: str, hops: Sequence[Hop]) -> Losses | None:
        losses = [hop.link.loss for hop in hops if hop.link.loss]
        if not losses:
            return None
        round_trip_s = 2.0 * fsum(hop.link.latency_s for hop in hops)
        # A way that is laid anew goes on drawing where it was.
        random = self._lost.setdefault((source, target), numpy_stream(self._seed, "loss", source, target))
        return Losses(together(losses), round_trip_s, random)
