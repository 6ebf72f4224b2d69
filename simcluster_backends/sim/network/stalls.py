"""A flow with pauses, as after lost packets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simcluster_backends.sim.loop.clock import Clock
from simcluster_backends.sim.network.flows import Flow, Network, Route
from simcluster_backends.sim.network.losses import Stall


class StallingFlow(Flow):
    """*size_bytes* over *route*, interrupted by *stalls*; during a pause the other flows have its share."""

    __slots__ = ("_clock", "_network", "_on_end", "_parts", "_route")

    def __init__(
        self,
        network: Network,
        clock: Clock,
        route: Route,
        size_bytes: float,
        stalls: Sequence[Stall],
        on_end: Callable[[], None],
    ) -> None:
        ends_B = [stall.before_B for stall in stalls] + [size_bytes]
        super().__init__(route, ends_B[0], self._part_over)
        self._network, self._clock, self._route, self._on_end = network, clock, route, on_end
        # Pauses, each with the bytes that follow it, in reverse order.
        self._parts = [
            (stall.pause_s, end_B - stall.before_B) for stall, end_B in zip(stalls, ends_B[1:], strict=True)
        ][::-1]

    def lay(self, route: Route) -> None:
        self._route = route
        super().lay(route)

    def _part_over(self) -> None:
        if not self._parts:
            self._on_end()
            return
        pause_s, self.left_B = self._parts.pop()
        # As if paused from outside, which may also happen meanwhile.
        self.paused, self.rate_Bps = True, 0.0
        self.alarm = self._clock.alarm_at(self._clock._now + pause_s, self._go_on)

    def _go_on(self, _: object) -> None:
        self.alarm = None
        self._network.resume(self, self._route)
