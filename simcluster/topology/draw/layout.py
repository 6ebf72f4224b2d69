"""Place the nodes of a drawing: nodes with several links in the middle, the others around them.

The layout is deterministic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import networkx
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Point = tuple[float, float]
Size = tuple[float, float]

MAX_STRESSED = 150
"""The maximum number of nodes with several links that stress majorization places.

If there are more, all of them are placed on a circle: the better layout takes cubic time.
"""

_ITERATIONS = 200
_ROW = 7
_ONE_LEAF = 0.9
# Boxes and their labels are wider than high, so the drawing may be, too.
_STRETCH = 1.3


def place(names: Sequence[str], links: Sequence[tuple[str, str]]) -> dict[str, Point]:
    """Return name -> position of each node, in units of about the length of one link."""
    graph: networkx.Graph[str] = networkx.Graph()
    graph.add_nodes_from(names)
    graph.add_edges_from(links)
    core = [name for name in names if len(graph[name]) > 1] or list(names[:1])
    leaves: dict[str, list[str]] = {name: [] for name in core}
    for name in names:
        if name not in leaves:
            # A node without links, such as a spare switch, is placed next to the first one.
            leaves[next((other for other in graph[name] if other in leaves), core[0])].append(name)
    middle = _place_core(core, graph.subgraph(core), {name: _reach(len(leaves[name]), len(core)) for name in core})
    points = {name: (float(x), float(y)) for name, (x, y) in zip(core, middle, strict=True)}
    for name in core:
        points |= _fan(points[name], leaves[name], len(core))
    return {name: (points[name][0] * _STRETCH, points[name][1]) for name in names}


def scale(
    points: Mapping[str, Point], sizes: Mapping[str, Size], links: Sequence[tuple[str, str]], gap: Size, label: Size
) -> dict[str, Point]:
    """Return *points* scaled so that the boxes around them, of *sizes*, do not overlap.

    Boxes are at least *gap* apart in x or in y, and linked boxes leave room for a *label*. The top
    left box ends up near (0, 0).
    """
    names = list(points)
    at = np.array([points[name] for name in names])
    half = np.array([sizes[name] for name in names]) / 2
    index = {name: position for position, name in enumerate(names)}
    pairs = np.array([(index[a], index[b]) for a, b in links], dtype=int).reshape(-1, 2)
    factor = 1.0
    for row in range(1, len(names)):
        factor = max(factor, _factor(at[row] - at[:row], half[row] + half[:row] + gap))
    if len(pairs):
        first, second = pairs.T
        factor = max(factor, _factor(at[first] - at[second], half[first] + half[second] + label))
    at = at * factor
    at -= (at - half).min(axis=0)
    return {name: (float(x), float(y)) for name, (x, y) in zip(names, at, strict=True)}


def _factor(apart: Array, needed: Array) -> float:
    """Return the least factor that brings each distance in *apart* to *needed*, in x or in y."""
    return float((needed / np.maximum(np.abs(apart), 1e-6)).min(axis=1).max())


def _reach(leaves: int, core: int) -> float:
    """Return the distance between a node and its *leaves*, in a drawing with *core* inner nodes."""
    if not leaves:
        return 0.0
    return max(1.0, leaves * 0.16) if core == 1 else max(_ONE_LEAF + 0.1 * (leaves > 1), leaves * 0.22)


def _fan(center: Point, leaves: Sequence[str], core: int) -> dict[str, Point]:
    """Place *leaves* around a lone node, or on the side of a node that faces away from (0, 0)."""
    reach = _reach(len(leaves), core)
    count = len(leaves)
    if core == 1:
        start = -math.pi / 2 if count > 2 else math.pi * (count - 1)
        angles = [start + 2 * math.pi * position / count for position in range(count)]
    else:
        outward = math.atan2(center[1], center[0])
        width = min(math.radians(210), math.radians(48) * (count - 1))
        steps = [position / (count - 1) - 0.5 if count > 1 else 0.0 for position in range(count)]
        # The first leaf is topmost, or leftmost if the leaves lie side by side.
        turn = 1 if math.cos(outward) > -1e-6 and math.sin(outward) < math.sqrt(0.5) + 1e-6 else -1
        angles = [outward + turn * width * step for step in steps]
    return {
        leaf: (center[0] + reach * math.cos(angle), center[1] + reach * math.sin(angle))
        for leaf, angle in zip(leaves, angles, strict=True)
    }


def _place_core(core: Sequence[str], graph: networkx.Graph[str], reach: Mapping[str, float]) -> Array:
    """Return points for *core*, centred on (0, 0), spaced by hop count, with room for leaves."""
    count = len(core)
    if count == 1:
        return np.zeros((1, 2))
    ends = [name for name in core if graph.degree[name] == 1]
    if len(ends) == 2 and all(degree <= 2 for _, degree in graph.degree):
        line = networkx.shortest_path(graph, *ends)
        if len(line) == count:
            return _fold(core, line, reach)
    turn = 2 * np.pi * np.arange(count) / count - np.pi / 2 - np.pi / count
    points: Array = np.stack([np.cos(turn), np.sin(turn)], axis=1) * count / (2 * np.pi)
    if count <= MAX_STRESSED:
        points = _level(_majorize(points, _distances(core, graph, reach)))
    return np.asarray(points - points.mean(axis=0))


def _fold(core: Sequence[str], line: Sequence[str], reach: Mapping[str, float]) -> Array:
    """Lay out *line* from left to right, folded downwards if it is long."""
    at = {line[0]: (0.0, 0.0)}
    x, y = 0.0, 0.0
    step = 1
    for number, (name, before) in enumerate(zip(line[1:], line, strict=False), start=1):
        room = 1 + _room(reach[name]) + _room(reach[before])
        if number % _ROW == 0:
            y, step = y + room, -step
        else:
            x += step * room
        at[name] = (x, y)
    points: Array = np.array([at[name] for name in core])
    return np.asarray(points - points.mean(axis=0))


def _room(reach: float) -> float:
    """Return the length that a node's other links gain to make room for its leaves."""
    return 0.6 * reach if reach > _ONE_LEAF else 0.0


def _distances(core: Sequence[str], graph: networkx.Graph[str], reach: Mapping[str, float]) -> Array:
    hops = np.asarray(networkx.floyd_warshall_numpy(graph, core))
    hops[np.isinf(hops)] = hops[np.isfinite(hops)].max() + 1
    room = np.array([_room(reach[name]) for name in core])
    distances: Array = hops + room[:, None] + room[None, :]
    np.fill_diagonal(distances, 0)
    return distances


def _majorize(points: Array, wanted: Array) -> Array:
    """Move *points* to about the *wanted* distances by stress majorization (SMACOF).

    The shortest wanted distances have the most weight.
    """
    with np.errstate(divide="ignore"):
        weights = np.where(wanted > 0, wanted**-2.0, 0.0)
    inverse = np.linalg.pinv(np.diag(weights.sum(axis=1)) - weights)
    for _ in range(_ITERATIONS):
        distances = np.linalg.norm(points[:, None] - points[None, :], axis=2)
        with np.errstate(divide="ignore", invalid="ignore"):
            pull = np.where(distances > 0, weights * wanted / distances, 0.0)
        points = inverse @ ((np.diag(pull.sum(axis=1)) - pull) @ points)
    return points


def _level(points: Array) -> Array:
    """Rotate *points* so that their widest extent is horizontal, unless all are about equal.

    The first node comes to the left, so that a chain has the same order as in the file.
    """
    centered = points - points.mean(axis=0)
    values, vectors = np.linalg.eigh(centered.T @ centered)
    if values[0] > 0.9 * values[1]:
        return np.asarray(centered)
    turned: Array = centered @ vectors[:, ::-1]
    if turned[0, 0] > 0:
        turned[:, 0] *= -1
    first = next((y for y in turned[:, 1] if abs(y) > 1e-6), -1.0)
    if first > 0:
        turned[:, 1] *= -1
    return turned
