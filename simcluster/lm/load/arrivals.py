"""Requests over time: a renewal process with gamma intervals (Poisson at burstiness 1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from simcluster.errors import UsageError
from simcluster.lm.load.lengths import Length
from simcluster.rng import numpy_stream

MOST_REQUESTS: Final = 10**6
"""Limit on the number of requests of a load."""


@dataclass(frozen=True, slots=True)
class OfferedRequest:
    """A request of a load: its time of arrival, and the lengths of its prompt and answer."""

    arrival_s: float
    prompt_tokens: int
    output_tokens: int


def intervals_s(rate_per_s: float, count: int, burstiness: float, random: np.random.Generator) -> np.ndarray:
    """Return *count* random intervals with mean 1 / rate and squared variation 1 / *burstiness*.

    At burstiness 1 the intervals are exponential. Below 1 requests come in bursts; above 1 they
    come more regularly. The squared variation is the square of standard deviation / mean.
    """
    if math.isinf(rate_per_s):
        return np.zeros(count)
    return random.gamma(burstiness, 1 / (rate_per_s * burstiness), count)


def offered(
    rate_per_s: float, count: int, prompt: Length, output: Length, seed: int = 0, burstiness: float = 1.0
) -> list[OfferedRequest]:
    """Return *count* requests, the first of them after one interval.

    With an infinite rate, all requests arrive at 0 s. Intervals and lengths draw from separate
    random streams, so a load at another rate has the same lengths.
    """
    arrivals_s = np.cumsum(intervals_s(rate_per_s, count, burstiness, numpy_stream(seed, "load", "intervals")))
    prompts = prompt.draw(count, numpy_stream(seed, "load", "prompts"))
    outputs = output.draw(count, numpy_stream(seed, "load", "outputs"))
    return [OfferedRequest(*one) for one in zip(arrivals_s.tolist(), prompts, outputs, strict=True)]


def at_rate(requests: Sequence[OfferedRequest], rate_per_s: float) -> list[OfferedRequest]:
    """Return *requests* with all intervals scaled by one factor, to a mean of 1 / rate.

    Raise UsageError if all of several arrive at once.
    """
    span_s = requests[-1].arrival_s
    if len(requests) > 1 and not span_s > 0:
        expected = f"none: all {len(requests):,} requests of the trace arrive at once"
        raise UsageError("--rate", f"{rate_per_s:g}", expected)
    factor = (len(requests) - 1) / (rate_per_s * span_s) if span_s > 0 else 1.0
    return [replace(one, arrival_s=one.arrival_s * factor) for one in requests]
