"""Max-min fair rates: a pure function from routes and capacities to one rate per flow.

This file knows arithmetic only. It must not know time, messages or an event loop.

Max-min fairness (Bertsekas and Gallager, Data Networks, 6.5.2): no flow's rate can grow without a smaller or equal one
shrinking. Certificate: every flow is bound, or crosses a full link on which no flow is faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import inf


def max_min_rates(
    routes: Sequence[Sequence[int]], capacities: Sequence[float], bounds: Sequence[float] | None = None
) -> list[float]:
    """The max-min rate of every flow.

    *routes[f]* are the indices of the links that flow f crosses, *capacities[l]* is in B/s, *bounds[f]* is the most
    that flow f can use by itself (inf if nothing bounds it). A flow that crosses no link and has no bound gets inf.

    Progressive filling: the link with the smallest fair share freezes its flows at that share, which can only raise
    the shares of the others; hence one heap with late updates, O((links + hops) log links).
    """
    left = list(capacities)
    crossing: list[list[int]] = [[] for _ in left]
    for flow, route in enumerate(routes):
        for link in route:
            crossing[link].append(flow)
    if bounds is not None:
        # A bound is a link of the flow's own.
        for flow, bound in enumerate(bounds):
            if bound < inf:
                left.append(bound)
                crossing.append([flow])
    unfrozen = [len(flows) for flows in crossing]
    own = _own_links(routes, crossing, len(capacities))
    rates = [inf] * len(routes)
    heap = [(left[link] / unfrozen[link], link) for link in range(len(left)) if unfrozen[link]]
    heapify(heap)
    level = 0.0
    while heap:
        share, link = heappop(heap)
        if not unfrozen[link]:
            continue
        # In exact arithmetic a share never falls below the level of the last freezing; rounding must not let it.
        current = max(level, left[link] / unfrozen[link])
        if current > share:
            heappush(heap, (current, link))
            continue
        level = share = current
        for flow in crossing[link]:
            if rates[flow] == inf:
                rates[flow] = share
                for other in own[flow]:
                    unfrozen[other] -= 1
                    left[other] -= share
    return rates


def _own_links(routes: Sequence[Sequence[int]], crossing: list[list[int]], real: int) -> list[list[int]]:
    """Each flow's links, its bound's included."""
    own = [list(route) for route in routes]
    for link in range(real, len(crossing)):
        own[crossing[link][0]].append(link)
    return own
