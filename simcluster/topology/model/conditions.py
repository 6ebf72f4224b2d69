"""Conditions of a link: latency that varies, bandwidth that changes, traffic of others. Frozen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from simcluster.units import format_bandwidth, format_latency

JitterKind: TypeAlias = Literal["exponential", "uniform", "lognormal"]
JITTER_KINDS = get_args(JitterKind)


@dataclass(frozen=True)
class Jitter:
    """What comes on top of a link's latency, drawn anew for every message: *mean_s* on average.

    exponential; uniform from 0 to twice the mean; lognormal with *sigma*, the deviation of its logarithm.
    """

    mean_s: float
    kind: JitterKind = "exponential"
    sigma: float = 0.0

    def __str__(self) -> str:
        spread = f", sigma {self.sigma:g}" if self.kind == "lognormal" else ""
        return f"{self.kind} jitter (mean {format_latency(self.mean_s)}{spread})"


@dataclass(frozen=True)
class RateTrace:
    """A bandwidth that changes: *steps* are (from when in s, B/s), the first from 0; 0 B/s is a standstill.

    After *period_s* they begin again; without one, the last holds for ever.
    """

    steps: tuple[tuple[float, float], ...]
    period_s: float = math.inf

    def __str__(self) -> str:
        rates = [rate_Bps for _, rate_Bps in self.steps]
        again = f", again every {format_latency(self.period_s)}" if math.isfinite(self.period_s) else ""
        return f"{format_bandwidth(min(rates))} to {format_bandwidth(max(rates))} in {len(rates)} steps{again}"


@dataclass(frozen=True)
class Background:
    """Traffic of others, which takes part in fair sharing and asks for *rate_Bps* at most.

    With *on_s* and *off_s* it comes and goes, for exponential times of these means; else it is always there.
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
    """*traffic* from node *source* to node *target*, over the route between them."""

    source: str
    target: str
    traffic: Background

    def __str__(self) -> str:
        return f"{self.source} to {self.target}: {self.traffic}"
