"""The per-message overhead of a node: messages are handled one after another, as by its event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simcluster_backends.sim.loop.clock import Clock


class Overheads:
    """One node's queue of overheads, *send_s* per message out and *recv_s* per message in; its device is unaffected."""

    __slots__ = ("_clock", "_free_s", "recv_s", "send_s")

    def __init__(self, clock: Clock, send_s: float, recv_s: float) -> None:
        self._clock = clock
        self.send_s, self.recv_s = send_s, recv_s
        self._free_s = 0.0

    def handle(self, overhead_s: float, then: Callable[[Any], object], argument: Any) -> None:
        """Call *then* with *argument* after all earlier overheads and *overhead_s*."""
        now_s = self._clock._now
        self._free_s = (self._free_s if self._free_s > now_s else now_s) + overhead_s
        if self._free_s > now_s:
            self._clock.alarm_at(self._free_s, then, argument)
        else:
            then(argument)
