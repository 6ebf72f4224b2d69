"""Where drawn lines cross, and who is lower on which side.

A crossing is where the drawn lines meet: between two points a line is straight on the axes that it is drawn on, so on
logarithmic axes it is interpolated in the logarithm.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise


@dataclass(frozen=True)
class Line:
    """*label* has *heights* at the same places as all others; None where it has none, and then it has a gap."""

    label: str
    heights: Sequence[float | None]


@dataclass(frozen=True)
class Crossing:
    """At *place* the lines *before* and *after* have the same *height*; *before* is lower to the left, *after* to the
    right. *is_lowest*: no other line is lower there, so who is lowest of all changes.
    """

    place: float
    height: float
    before: str
    after: str
    is_lowest: bool


def crossings(places: Sequence[float], lines: Sequence[Line], x_is_log: bool, y_is_log: bool) -> list[Crossing]:
    """All of them, from left to right; *places* rise. Lines that touch and do not change sides do not cross."""
    x = [math.log(place) if x_is_log else place for place in places]
    heights = {line.label: [_on_axis(height, y_is_log) for height in line.heights] for line in lines}
    found = []
    for a, b in combinations(heights, 2):
        for at, height, a_is_before in _of_two(x, heights[a], heights[b]):
            others = (_height_at(at, x, own) for label, own in heights.items() if label not in (a, b))
            lowest = all(other is None or height <= other for other in others)
            before, after = (a, b) if a_is_before else (b, a)
            place, tall = math.exp(at) if x_is_log else at, math.exp(height) if y_is_log else height
            found.append(Crossing(place, tall, before, after, lowest))
    return sorted(found, key=lambda crossing: crossing.place)


def _on_axis(height: float | None, is_log: bool) -> float | None:
    return math.log(height) if is_log and height is not None else height


def _of_two(
    x: Sequence[float], a: Sequence[float | None], b: Sequence[float | None]
) -> Iterator[tuple[float, float, bool]]:
    """(where, how high, whether *a* is the lower one before) of each crossing of two lines."""
    last: tuple[int, float] | None = None  # the last point at which they differ, and by how much a is higher
    for i, (mine, other) in enumerate(zip(a, b, strict=True)):
        if mine is None or other is None:
            last = None
            continue
        apart = mine - other
        if apart == 0.0:
            continue
        if last is not None and (apart > 0) != (last[1] > 0):
            before, was = last
            if before == i - 1:
                share = was / (was - apart)
                start = a[before]
                assert start is not None, "a gap would have begun anew"
                yield x[before] + share * (x[i] - x[before]), start + share * (mine - start), was < 0
            else:  # they have been one in between
                height = a[before + 1]
                assert height is not None, "a gap would have begun anew"
                yield x[before + 1], height, was < 0
        last = (i, apart)


def _height_at(at: float, x: Sequence[float], heights: Sequence[float | None]) -> float | None:
    for (x0, y0), (x1, y1) in pairwise(zip(x, heights, strict=True)):
        if x0 <= at <= x1 and y0 is not None and y1 is not None:
            return y0 + (y1 - y0) * (at - x0) / (x1 - x0)
    return None
