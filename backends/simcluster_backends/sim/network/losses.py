"""The effect of packet loss on a TCP connection: a bound on its rate, and timeouts. No message is lost.

The bound is MSS / (RTT sqrt(2 b p / 3)) (Mathis, Semke, Mahdavi, Ott, "The macroscopic behavior of the TCP congestion
avoidance algorithm", CCR 1997), for a share p of packets lost and an acknowledgement for every b packets. A timeout
follows a share min(1, 3/w) of the losses (Padhye, Firoiu, Towsley, Kurose, "Modeling TCP throughput", SIGCOMM 1998,
below PFTK), where the window w is sqrt(8 / (3 b p)) packets on average, but never larger than the
message. On average a long transfer has exactly the goodput of PFTK's equation without a maximum
window,

    MSS / goodput = RTT sqrt(2 b p / 3) + p min(1, 3 sqrt(3 b p / 8)) T0 (1 + p + 2 p^2 + ... + 32 p^6) / (1 - p)

This is TCP Reno. CUBIC is faster on long fat paths; tail loss probes end some timeouts sooner.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from simcluster_backends.sim.network.flows import Flow, FlowRoute, Network

if TYPE_CHECKING:
    import numpy as np

MSS_BYTES = 1448
"""The payload of a TCP segment over Ethernet, with timestamps."""

ACKNOWLEDGED_PACKETS = 2
"""The b of the equations: receivers acknowledge every second packet (RFC 1122, 4.2.3.2)."""

LEAST_TIMEOUT_S = 0.2
"""Linux's minimum timeout on top of the round trip, TCP_RTO_MIN; RFC 6298 says 1 s."""

LONGEST_BACKOFF = 6
"""The maximum number of times that a timeout doubles."""


class Stall(NamedTuple):
    """A pause of *pause_s* after the first *before_B* bytes of a message."""

    before_B: float
    pause_s: float


def rate_bound_Bps(loss: float, round_trip_s: float) -> float:
    """Return the rate at which TCP's window halves as often as it grows back; inf without losses or latency."""
    if not loss or not round_trip_s:
        return math.inf
    return MSS_BYTES / (round_trip_s * math.sqrt(2 * ACKNOWLEDGED_PACKETS * loss / 3))


def together(losses: list[float]) -> float:
    """Return the share of packets lost on a path over links with these *losses*."""
    arrived = math.prod(1.0 - loss for loss in losses)
    return 1.0 - arrived if arrived < 1.0 else 0.0


class Losses:
    """The timeouts of one ordered stream of messages."""

    def __init__(self, loss: float, round_trip_s: float, random: np.random.Generator) -> None:
        self._loss = loss
        self._window = math.sqrt(8 / (3 * ACKNOWLEDGED_PACKETS * loss))
        self._timeout_s = round_trip_s + LEAST_TIMEOUT_S
        self._random = random

    def stalls(self, size_B: float) -> list[Stall]:
        """Return the stalls of a message of *size_B* in order: nearly always none."""
        packets = max(1, math.ceil(size_B / MSS_BYTES))  # a header alone needs one
        timeouts = self._loss * min(1.0, 3.0 / min(self._window, packets))
        number = int(self._random.binomial(packets, timeouts))
        if not number:
            return []
        places = sorted(self._random.choice(packets, number, replace=False).tolist())
        return [Stall(min(place * MSS_BYTES, size_B), self._pause_s()) for place in places]

    def _pause_s(self) -> float:
        """Draw a pause: the timeout doubles each time that the retransmitted packet is lost."""
        pause_s = self._timeout_s
        doubled = 0
        while self._random.random() < self._loss:
            doubled += 1
            pause_s += self._timeout_s * 2 ** min(doubled, LONGEST_BACKOFF)
        return pause_s


class StallingFlow(Flow, eq=False, kw_only=True):
    """A flow over *network*, interrupted by *stalls*. During a stall, other flows get its share.

    *on_done* is called once, after the last stall and the last byte.
    """

    network: Network
    stalls: Sequence[Stall]
    on_end: Callable[[], None] = lambda: None
    ends_B: Sequence[float] = ()  # the end of the bytes that follow each stall
    over: int = 0  # the number of stalls so far

    def __post_init__(self) -> None:
        self.left_B, *self.ends_B = [*(stall.before_B for stall in self.stalls), self.left_B]
        self.on_end, self.on_done = self.on_done, self._part_over

    def _part_over(self) -> None:
        if self.over == len(self.stalls):
            self.on_end()
            return
        stall, end_B = self.stalls[self.over], self.ends_B[self.over]
        self.over += 1
        self.left_B = end_B - stall.before_B
        # Leave the flow as Network.pause does: a fault may pause this flow during the stall.
        self.paused = True
        self.pace_Bps = 0.0
        clock = self.network.clock
        self.alarm = clock.alarm_at(clock.now_s + stall.pause_s, self._go_on)

    def _go_on(self, _: object) -> None:
        self.alarm = None
        self.network.resume(self, FlowRoute(self.uses, self.bound_Bps, self.weight))
