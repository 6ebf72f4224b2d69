"""Conditions of a link: variable latency, changing bandwidth, background traffic. All frozen."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Literal, get_args

from simcluster.units import format_bandwidth, format_latency

JitterKind = Literal["exponential", "uniform", "lognormal"]
JITTER_KINDS = get_args(JitterKind)


@dataclass(frozen=True)
class Jitter:
    """Extra latency of a link, drawn for every message, *mean_s* on average.

    The distribution *kind* is exponential; uniform from 0 to twice the mean; or lognormal, where
    *sigma* is the standard deviation of the logarithm.
    """

    mean_s: float
    kind: JitterKind = "exponential"
    sigma: float = 0.0

    def __str__(self) -> str:
        spread = f", sigma {self.sigma:g}" if self.kind == "lognormal" else ""
        return f"{self.kind} jitter (mean {format_latency(self.mean_s)}{spread})"


@dataclass(frozen=True)
class RateTrace:
    """A changing bandwidth: *steps* are (start in s, B/s), and the first starts at 0.

    At 0 B/s, the link carries nothing. The steps repeat after *period_s*; without a period, the
    last step holds forever. *source* says where the steps come from.
    """

    steps: tuple[tuple[float, float], ...]
    period_s: float = math.inf
    source: str = ""

    def __str__(self) -> str:
        return self._in_words(format_bandwidth)

    def _in_words(self, in_units: Callable[[float], str]) -> str:
        values = [value for _, value in self.steps]
        again = f", again every {format_latency(self.period_s)}" if math.isfinite(self.period_s) else ""
        source = f" ({self.source})" if self.source else ""
        return f"{in_units(min(values))} to {in_units(max(values))} in {len(values)} steps{again}{source}"


@dataclass(frozen=True)
class LatencyTrace(RateTrace):
    """A changing latency: *steps* are (start in s, latency in s); *nominal_s* is the nominal one.

    A message has the latency of the moment at which it leaves its sender, and never overtakes an
    earlier message.
    """

    nominal_s: float = 0.0

    def extra_s(self, time_s: float) -> float:
        """Return by how much the latency at *time_s* exceeds the nominal one; negative if it is lower."""
        step = bisect_right(self.steps, math.fmod(time_s, self.period_s), key=itemgetter(0)) - 1
        return self.steps[step][1] - self.nominal_s

    def __str__(self) -> str:
        return f"latency {self._in_words(format_latency)}"


@dataclass(frozen=True)
class Background:
    """Background traffic, which takes part in fair sharing and demands at most *rate_Bps*.

    With *on_s* and *off_s* the traffic alternates between on and off, for exponentially distributed
    times with these means. Otherwise it is always on.
    """

    rate_Bps: float
    on_s: float = math.inf
    off_s: float = 0.0

    @property
    def comes_and_goes(self) -> bool:
        return math.isfinite(self.on_s)

    def __str__(self) -> str:
        times = f", on for {format_latency(self.on_s)} and off for {format_latency(self.off_s)} on average"
        return f"{format_bandwidth(self.rate_Bps)}{times if self.comes_and_goes else ''}"


@dataclass(frozen=True)
class BackgroundFlow:
    """Background *traffic* from node *source* to node *target*, along the route between them."""

    source: str
    target: str
    traffic: Background

    def __str__(self) -> str:
        return f"{self.source} to {self.target}: {self.traffic}"
