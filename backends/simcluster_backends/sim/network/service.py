"""When flows at one level end, in virtual time: the service per unit of weight, as in generalised processor sharing.

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
"""The number of flows that leave, above the number that are left, before the service counts from 0 again."""


class FlowEnd(msgspec.Struct, eq=False):
    """The end of *flow*: when *service* has come to *at*."""

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
    _ends: list[tuple[float, int, int, FlowEnd]] = field(default_factory=list)  # a heap, with some that are over
    _added: int = 0
    _dropped: int = 0  # since the service was 0

    def run(self, now_s: float, pace: float) -> None:
        """Advance to *now_s*, and continue at another pace."""
        self.virtual = self._at(now_s)
        self.since_s, self.pace = now_s, pace

    def rest(self, now_s: float) -> None:
        """Count from 0 at *now_s*, without flows."""
        self.virtual, self.since_s, self._dropped = 0.0, now_s, 0

    def _at(self, now_s: float) -> float:
        return self.virtual + self.pace * (now_s - self.since_s)

    def add(self, flow: Demand, left_B: float, now_s: float) -> FlowEnd:
        """Serve *flow* until none of *left_B* is left; return its end."""
        end = FlowEnd(self, self._at(now_s) + left_B / flow.weight, flow)
        self._added += 1
        heappush(self._ends, (end.at, flow.number, self._added, end))
        return end

    def left_B(self, end: FlowEnd, now_s: float) -> float:
        """Return the bytes left of the flow with this *end*."""
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
        self.virtual, self.since_s = max(self.virtual, at), now_s
        self.drop(end)
        return end.flow

    def _count_from_0(self) -> None:
        """Subtract the service until now: large numbers would round small flows away."""
        kept = [(number, added, end) for _, number, added, end in self._ends if not end.is_over]
        for _, _, end in kept:
            end.at -= self.virtual
        self._ends = [(end.at, number, added, end) for number, added, end in kept]
        heapify(self._ends)
        self.virtual, self._dropped = 0.0, 0
