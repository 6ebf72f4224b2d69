"""Draw the ground of each site of a topology's nodes: a region, a room, a home."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from simcluster.topology.draw.labels import Box, overlap, touches
from simcluster.topology.draw.layout import Point, Size
from simcluster.topology.draw.style import SMALL_SIZE, svg_text, text_width
from simcluster.topology.model.model import Topology

_EDGE, _CAPTION = 12.0, 24.0


class _Ground(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def holds(self, point: Point) -> bool:
        return self.left < point[0] < self.right and self.top < point[1] < self.bottom


def sites_svg(
    topology: Topology, at: Mapping[str, Point], sizes: Mapping[str, Size], labels: Sequence[Box]
) -> list[str]:
    """Return a ground under each site, if there are several and no ground covers another site's node.

    A site's name goes to a top corner where no link and none of *labels* crosses it, if there is one.
    """
    members: dict[str, list[str]] = {}
    for node in topology.nodes.values():
        members.setdefault(node.site or "", []).append(node.name)
    grounds = {site: _ground(names, at, sizes) for site, names in members.items() if site}
    clear = all(
        site == other or not ground.holds(at[name])
        for site, ground in grounds.items()
        for other, names in members.items()
        for name in names
    )
    if len(grounds) < 2 or not clear:
        return []
    lines = [(at[link.a], at[link.b]) for link in topology.links]
    return [_svg(site, ground, lines, labels) for site, ground in grounds.items()]


def _ground(names: Sequence[str], at: Mapping[str, Point], sizes: Mapping[str, Size]) -> _Ground:
    """Return the area that *names* cover, plus a margin."""
    edges = [(*at[name], *sizes[name]) for name in names]
    return _Ground(
        min(x - width / 2 for x, _, width, _ in edges) - _EDGE,
        min(y - height / 2 for _, y, _, height in edges) - _CAPTION,
        max(x + width / 2 for x, _, width, _ in edges) + _EDGE,
        max(y + height / 2 for _, y, _, height in edges) + _EDGE,
    )


def _svg(site: str, ground: _Ground, lines: Sequence[tuple[Point, Point]], labels: Sequence[Box]) -> str:
    left, top, right, bottom = ground
    rect = f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{bottom - top:.1f}" rx="12"/>'
    half, y = text_width(site, SMALL_SIZE) / 2, top + 11

    def crossed(x: float) -> int:
        box = Box(x, y, half, 8.0)
        return sum(touches(box, line) for line in lines) + sum(overlap(box, label) for label in labels)

    if crossed(right - 10 - half) < crossed(left + 10 + half):
        return f'<g class="site">{rect}{svg_text(right - 10, y, site, "small end")}</g>'
    return f'<g class="site">{rect}{svg_text(left + 10, y, site, "small start")}</g>'
