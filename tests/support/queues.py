"""Oracles for queues: a small independent queue, and the mean number in it."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence


def served(arrivals_s: Sequence[float], services_s: Sequence[float], servers: int = 1) -> list[tuple[float, float]]:
    """Return (start, end) of each request at *servers* that take the oldest one first."""
    free_s = [0.0] * servers
    found = []
    for arrival_s, service_s in zip(arrivals_s, services_s, strict=True):
        start_s = max(arrival_s, heapq.heappop(free_s))
        heapq.heappush(free_s, start_s + service_s)
        found.append((start_s, start_s + service_s))
    return found


def mean_number(spans_s: Iterable[tuple[float, float]]) -> float:
    """Return the time average of the number of open (arrival, end) spans, counted event by event."""
    events = sorted([(at_s, change) for span in spans_s for at_s, change in zip(span, (1, -1), strict=True)])
    area, number, before_s = 0.0, 0, events[0][0]
    for at_s, change in events:
        area += number * (at_s - before_s)
        number, before_s = number + change, at_s
    return area / (events[-1][0] - events[0][0])
