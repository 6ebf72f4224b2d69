"""Conditions of a link: variable latency, changing bandwidth, background traffic. All frozen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from simcluster.units import format_bandwidth, format_latency

JitterKind: TypeAlias = Literal["exponential", "uniform", "lognormal"]
JITTER_KINDS = get_args(JitterKind)


@dataclass(frozen=True)
class Jitter:
    """Extra latency of a link, drawn for every message, *mean_s* on average.

    exponential; uniform from 0 to twice the mean; lognormal, with *sigma* the standard deviation of its logarithm.
    """

    mean_s: float
    kind: JitterKind = "exponential"
    sigma: float = 0.0

    def __str__(self) -> str:
        spread = f", sigma {self.sigma:g}" if self.kind == "lognormal" else ""
        return f"{self.kind} jitter (mean {format_latency(self.mean_s)}{spread})"


@dataclass(frozen=True)
class RateTrace:
    """A changing bandwidth: *steps* are (start in s, B/s), the first at 0; 0 B/s is a standstill.

    The steps repeat after *period_s*; without one, the last holds forever.
    """

    steps: tuple[tuple[float, float], ...]
    period_s: float = math.inf

    def __str__(self) -> str:
        rates = [rate_Bps for _, rate_Bps in self.steps]
        again = f", again every {format_latency(self.period_s)}" if math.isfinite(self.period_s) else ""
        return f"{format_bandwidth(min(rates))} to {format_bandwidth(max(rates))} in {len(rates)} steps{again}"


@dataclass(frozen=True)
class Background:
    """Background traffic, which takes part in fair sharing and demands at most *rate_Bps*.

    With *on_s* and *off_s* it alternates between on and off, for exponential times of these means; otherwise it is
    always on.
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
    """*traffic* from node *source* to node *target*, along their route."""

    source: str
    target: str
    traffic: Background

    def __str__(self) -> str:
        return f"{self.source} to {self.target}: {self.traffic}"
