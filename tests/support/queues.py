"""Oracles for queues: formulas of mean waiting times, a small independent queue, and the errors of sampled means."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence

import numpy as np


def mg1_wait_s(rate_per_s: float, mean_s: float, variance_s2: float) -> float:
    """Return the mean wait of M/G/1 before service (Pollaczek-Khinchine): rate E[S^2] / 2 (1 - load)."""
    return rate_per_s * (mean_s**2 + variance_s2) / (2 * (1 - rate_per_s * mean_s))


def mm1_wait_s(rate_per_s: float, mean_s: float) -> float:
    return mg1_wait_s(rate_per_s, mean_s, mean_s**2)


def md1_wait_s(rate_per_s: float, mean_s: float) -> float:
    return mg1_wait_s(rate_per_s, mean_s, 0.0)


def mmk_wait_s(rate_per_s: float, mean_s: float, servers: int) -> float:
    """Return the mean wait of M/M/k: Erlang's C, the probability of a wait, times the mean of one that waits."""
    offered = rate_per_s * mean_s
    full = offered**servers / math.factorial(servers) / (1 - offered / servers)
    waits = full / (sum(offered**n / math.factorial(n) for n in range(servers)) + full)
    return waits * mean_s / (servers - offered)


def served(arrivals_s: Sequence[float], services_s: Sequence[float], servers: int = 1) -> list[tuple[float, float]]:
    """Return (start, end) of each request at *servers* that take the oldest one first."""
    free_s = [0.0] * servers
    found = []
    for arrival_s, service_s in zip(arrivals_s, services_s, strict=True):
        start_s = max(arrival_s, heapq.heappop(free_s))
        heapq.heappush(free_s, start_s + service_s)
        found.append((start_s, start_s + service_s))
    return found


def mean_and_error(values: Sequence[float], batches: int = 50) -> tuple[float, float]:
    """Return the mean of *values* and its standard error by batch means, because waits of neighbours are correlated."""
    means = [float(np.mean(batch)) for batch in np.array_split(np.asarray(values), batches)]
    return float(np.mean(values)), float(np.std(means, ddof=1)) / math.sqrt(batches)


def agrees(values: Sequence[float], expected: float, precision: float = 0.07) -> bool:
    """Return whether the mean of *values* is within 4 standard errors of *expected*, known to *precision* of it.

    Four standard errors of 50 batches are exceeded by chance in 2 of 10,000 samples.
    """
    mean, error = mean_and_error(values)
    return abs(mean - expected) <= 4 * error <= precision * expected


def mean_number(spans_s: Iterable[tuple[float, float]]) -> float:
    """Return the time average of the number of open (arrival, end) spans, counted event by event."""
    events = sorted([(at_s, change) for span in spans_s for at_s, change in zip(span, (1, -1), strict=True)])
    area, number, before_s = 0.0, 0, events[0][0]
    for at_s, change in events:
        area += number * (at_s - before_s)
        number, before_s = number + change, at_s
    return area / (events[-1][0] - events[0][0])
