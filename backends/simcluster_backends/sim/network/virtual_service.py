"""The ends of flows at one level, in virtual time: the service so far per unit of weight.

A flow that joins with n bytes left ends n / weight of service later, whatever the level will be. So the order of ends
never changes, and a change of the level moves one clock (Parekh and Gallager, "A generalized processor sharing approach
to flow control in integrated services networks", IEEE/ACM Transactions on Networking 1 (3), 1993).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from simcluster_backends.sim.loop.clock import Alarm
    from simcluster_backends.sim.network.channels import Demand

FEW = 64
"""The service counts from 0 again once departed flows outnumber the others by this number."""


class FlowEnd(msgspec.Struct, eq=False):
    """The end of *flow*, which comes when *service* reaches *at*."""

    service: VirtualService
    at: float
    flow: Demand
    is_over: bool = False


@dataclass(slots=True, eq=False)
class VirtualService:
    """The flows that a full channel holds. *pace* is their level since *since_s*, *virtual* the service until then."""

    pace: float = 0.0
    since_s: float = 0.0
    virtual: float = 0.0
    alarm: Alarm | None = None  # for the first end
    _ends: list[tuple[float, int, int, FlowEnd]] = field(default_factory=list)  # a heap
    _added: int = 0
    _dropped: int = 0  # flows that left since the service was 0

    def run(self, now_s: float, pace: float) -> None:
        """Advance to *now_s*, and continue at *pace*."""
        self.virtual = self._at(now_s)
        self.since_s = now_s
        self.pace = pace

    def rest(self, now_s: float) -> None:
        """Reset the service to 0 at *now_s*, when there are no flows."""
        self.virtual = 0.0
        self.since_s = now_s
        self._dropped = 0

    def _at(self, now_s: float) -> float:
        return self.virtual + self.pace * (now_s - self.since_s)

    def add(self, flow: Demand, left_B: float, now_s: float) -> FlowEnd:
        """Serve *flow* until none of *left_B* is left; return its end."""
        end = FlowEnd(self, self._at(now_s) + left_B / flow.weight, flow)
        self._added += 1
        heappush(self._ends, (end.at, flow.number, self._added, end))
        return end

    def left_B(self, end: FlowEnd, now_s: float) -> float:
        """Return the number of bytes that the flow with this *end* has left."""
        return max(0.0, (end.at - self._at(now_s)) * end.flow.weight)

    def drop(self, end: FlowEnd) -> None:
        """Stop serving the flow with this *end*."""
        end.is_over = True
        self._dropped += 1

    def first(self) -> FlowEnd | None:
        """Return the next end, if any."""
        if self._dropped > FEW + len(self._ends):
            self._count_from_0()
        ends = self._ends
        while ends and ends[0][3].is_over:
            heappop(ends)
        return ends[0][3] if ends else None

    def finish(self, now_s: float) -> Demand:
        """Let the first flow end at *now_s*; return it."""
        at, _, _, end = heappop(self._ends)
        self.virtual = max(self.virtual, at)  # rounding must not decrease the service
        self.since_s = now_s
        self.drop(end)
        return end.flow

    def _count_from_0(self) -> None:
        """Subtract the service so far from all ends: large numbers would round small flows away."""
        kept = [(number, added, end) for _, number, added, end in self._ends if not end.is_over]
        for _, _, end in kept:
            end.at -= self.virtual
        self._ends = [(end.at, number, added, end) for number, added, end in kept]
        heapify(self._ends)
        self.virtual = 0.0
        self._dropped = 0
