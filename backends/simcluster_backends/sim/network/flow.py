"""A flow of bytes, and the path that it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

from simcluster_backends.sim.loop.clock import Alarm
from simcluster_backends.sim.network.channels import Channel, Demand
from simcluster_backends.sim.network.virtual_service import FlowEnd


class FlowRoute(NamedTuple):
    """The path of a flow, computed once per pair of nodes: *uses* of shared channels, a bound and a weight."""

    uses: Sequence[tuple[Channel, float]]
    bound_Bps: float = inf
    weight: float = 1.0


class Flow(Demand, eq=False, kw_only=True):
    """Bytes that use bandwidth; *on_done* is called when the last byte has passed.

    A flow has an *end* in the service of the full channel that holds it, or else an *alarm*.
    """

    left_B: float
    on_done: Callable[[], None]
    since_s: float = 0.0
    pace_Bps: float = 0.0  # its rate from *since_s* on
    paused: bool = False
    alarm: Alarm | None = None  # None while its rate is 0
    end: FlowEnd | None = None

    def lay(self, route: FlowRoute) -> None:
        """Use *route* from now on. Allowed only while the flow is off the network."""
        self.uses, self.bound_Bps, self.weight = route
        self.own_Bps = 0.0
