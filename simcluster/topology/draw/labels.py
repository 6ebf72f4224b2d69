"""Place the labels of links so that, if possible, no label covers a node or another label."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from simcluster.topology.draw.layout import Point, Size


class Box(NamedTuple):
    """A rectangle: its centre, half of its width and height, and its rotation in degrees."""

    x: float
    y: float
    half_width: float
    half_height: float
    turn: float = 0.0


_PLACES = tuple(percent / 100 for percent in range(20, 81, 5))
_TURNED_COST = 30.0
_AWAY_COST = 40.0
_ON_LINE_COST = 60.0
_OVERLAP_COST = 1000.0
_AIR = 5.0
"""Margin between a label and the lines of other links, so that it is not taken for theirs."""


def place_labels(
    lines: Sequence[tuple[Point, Point]], sizes: Sequence[Size | None], nodes: Sequence[Box]
) -> tuple[list[Box | None], bool]:
    """Return (the box of each link's label, whether no label overlaps a node or another label).

    A link without a label has the size None. A label is preferably level, in the middle of its
    line, and off all other lines; it is never upside down.
    """
    placed: list[Box | None] = []
    clear = True
    for index, (line, size) in enumerate(zip(lines, sizes, strict=True)):
        if size is None:
            placed.append(None)
            continue
        taken = [*nodes, *(box for box in placed if box is not None)]
        costs: dict[Box, float] = {}
        for box, own_cost in _candidates(line, size):
            found = own_cost + _OVERLAP_COST * sum(overlap(box, other) for other in taken)
            found += _ON_LINE_COST * sum(touches(box, other, _AIR) for k, other in enumerate(lines) if k != index)
            costs.setdefault(box, found)
        best = min(costs, key=costs.__getitem__)
        placed.append(best)
        clear = clear and not any(overlap(best, other) for other in taken)
    return placed, clear


def _candidates(line: tuple[Point, Point], size: Size) -> Iterator[tuple[Box, float]]:
    (ax, ay), (bx, by) = line
    along = (math.degrees(math.atan2(by - ay, bx - ax)) + 90) % 180 - 90
    for place in _PLACES:
        x, y = ax + (bx - ax) * place, ay + (by - ay) * place
        away = _AWAY_COST * abs(place - 0.5)
        yield Box(x, y, size[0] / 2, size[1] / 2), away
        if abs(along) > 5:
            yield Box(x, y, size[0] / 2, size[1] / 2, along), away + _TURNED_COST


def between(a: Box, b: Box) -> tuple[Point, Point]:
    """Return the part of the line between two boxes' centres that lies outside both."""
    dx, dy = b.x - a.x, b.y - a.y

    def exit_of(box: Box) -> float:
        return min(box.half_width / abs(dx) if dx else math.inf, box.half_height / abs(dy) if dy else math.inf, 0.5)

    start, end = exit_of(a), exit_of(b)
    return (a.x + dx * start, a.y + dy * start), (b.x - dx * end, b.y - dy * end)


def overlap(one: Box, other: Box) -> bool:
    """Return whether two rectangles overlap, by the separating axis theorem."""
    dx, dy = other.x - one.x, other.y - one.y
    for box in (one, other):
        for extra in (0.0, 90.0):
            angle = math.radians(box.turn + extra)
            ux, uy = math.cos(angle), math.sin(angle)
            if abs(dx * ux + dy * uy) >= _extent(one, ux, uy) + _extent(other, ux, uy):
                return False
    return True


def _extent(box: Box, ux: float, uy: float) -> float:
    """Return half the extent of *box* in the direction (ux, uy)."""
    angle = math.radians(box.turn)
    c, s = math.cos(angle), math.sin(angle)
    return box.half_width * abs(c * ux + s * uy) + box.half_height * abs(c * uy - s * ux)


def touches(box: Box, line: tuple[Point, Point], air: float = 0.0) -> bool:
    """Return whether *line*, a rectangle without height, comes within *air* of *box*."""
    (ax, ay), (bx, by) = line
    length = math.hypot(bx - ax, by - ay)
    turn = math.degrees(math.atan2(by - ay, bx - ax))
    around = box._replace(half_width=box.half_width + air, half_height=box.half_height + air)
    return overlap(around, Box((ax + bx) / 2, (ay + by) / 2, length / 2, 0.0, turn))
