"""Draw a topology as SVG: its nodes with their devices, and its links with their numbers.

After a run, the drawing also shows the use of each link. An HTML page adds tables of the nodes and
links with the source of every number. The drawing loads no other file, and all text is escaped,
since names may come from an untrusted file.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from simcluster.topology.draw.labels import Box, between, overlap, place_labels, touches
from simcluster.topology.draw.layout import Point, Size, place, scale
from simcluster.topology.draw.style import NAME_SIZE, PAGE_STYLE, SMALL_SIZE, SVG_STYLE, svg_text, text_width
from simcluster.topology.model.compute import CPU
from simcluster.topology.model.device import Device
from simcluster.topology.model.link import Link
from simcluster.topology.model.model import Node, Topology
from simcluster.units import format_size

LinkUse = Mapping[str, tuple[float, float]]
"""Link name -> (fraction of the time it was busy, bytes carried in both directions)."""

MAX_LABELLED = 24
"""The maximum number of links in a drawing that labels every link.

With more links, those with the commonest numbers get no label. If too many labels remain, no link
gets one.
"""
_MOST_LABELS = 60

_MARGIN = 28.0
_LINE_HEIGHT = 14.0
# While labels overlap, scale the drawing up by this factor, in at most this number of rounds.
_GROWTH, _ROUNDS = 1.12, 8
_MARK = 36
# The fractions of busy time at which the colour of a link changes.
_BUSY_STEPS = (0.05, 0.25, 0.5, 0.8)
_BUSY_WORDS = ("under 5 %", "5 to 25 %", "25 to 50 %", "50 to 80 %", "over 80 % busy")
# The margin around a site, and the larger one at its top for the name.
_EDGE, _CAPTION = 12.0, 24.0


Area = tuple[float, float, float, float]
"""The left, top, right and bottom edges of a rectangle."""


class _Drawing(NamedTuple):
    at: dict[str, Point]
    sizes: dict[str, Size]
    labels: list[list[str]]
    places: list[Box | None]


def draw_svg(topology: Topology, link_use: LinkUse | None = None) -> str:
    """Return the drawing of *topology* as an <svg> element for a page.

    If *link_use* is given, each link is coloured and labelled by its use. The element shrinks with
    the page, but never becomes too small to read, so let its parent scroll.
    """
    drawing = _arrange(topology, link_use)
    rank = {name: position for position, name in enumerate(topology.workers)}
    parts = _sites(topology, drawing)
    parts += [_line(link, drawing, link_use) for link in topology.links]
    parts += [_label(lines, place) for lines, place in zip(drawing.labels, drawing.places, strict=True) if place]
    parts += [_box(node, drawing, rank.get(node.name)) for node in topology.nodes.values()]
    *_, right, bottom = _bounds(drawing.at, drawing.at, drawing.sizes)
    width, height = right + _MARGIN, bottom + _MARGIN
    legend = _legend(topology, drawing.labels, link_use)
    width = max(width, *(_legend_width(words) + 2 * _MARGIN for _, words in legend), 0.0)
    x = _MARGIN
    for mark, words in legend:
        if x > _MARGIN and x + _legend_width(words) + _MARGIN > width:
            x, height = _MARGIN, height + 20
        text = svg_text(_MARK + 8, 0, words, "small start")
        parts.append(f'<g transform="translate({x:.0f} {height:.0f})">{mark}{text}</g>')
        x += _legend_width(words) + 22
    height += 20 if legend else 0
    title = f"{topology.name}: {len(topology.workers)} workers, {len(topology.links)} links"
    return (
        f'<svg class="topology" xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(title)}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'style="max-width:100%;min-width:{min(width, max(320.0, width * 0.85)):.0f}px;height:auto">'
        f"<style>{SVG_STYLE}</style>{''.join(parts)}</svg>"
    )


def draw_html(topology: Topology) -> str:
    """Return a self-contained page with the drawing and tables of nodes, links and sources."""
    ranks = {name: str(rank) for rank, name in enumerate(topology.workers)}
    nodes = []
    for node in topology.nodes.values():
        words = (node.device.name if node.device else node.kind, _speed(node.device) if node.device else "")
        nodes.append((ranks.get(node.name, ""), node.name, *words, node.site or "", node.address or ""))
    links = [(link.name, link.type or "", *link.numbers) for link in topology.links]
    devices = [node.device for node in topology.nodes.values() if node.device is not None]
    sources = [(device.name, device.source) for device in devices]
    sources += [(link.type or "other links", link.source) for link in topology.links]
    name = escape(topology.name)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{name}</title><style>{PAGE_STYLE}</style></head><body>"
        f"<h1>{name}</h1><p>{escape(topology.description)}</p>"
        f'<div class="drawing">{draw_svg(topology)}</div>'
        f"<h2>Nodes</h2>{_table(('rank', 'node', 'device', 'speed and memory', 'site', 'address'), nodes)}"
        f"<h2>Links</h2>{_table(('link', 'type', 'bandwidth', 'latency', 'duplex'), links)}"
        "<h2>Where the numbers come from</h2>"
        f"{_table(('device or link', 'source'), list(dict.fromkeys(sources)), 'table sources')}"
        "</body></html>\n"
    )


def _arrange(topology: Topology, link_use: LinkUse | None) -> _Drawing:
    sizes = {node.name: _size(node) for node in topology.nodes.values()}
    ends = [(link.a, link.b) for link in topology.links]
    labels = _labels(topology, link_use)
    widest = max((_label_size(lines) for lines in labels if lines), default=(20.0, 20.0))
    # Leave some of the link visible on both sides of its label.
    room = (widest[0] + 40, widest[1] + 32)
    at = scale(place(list(topology.nodes), ends), sizes, ends, (22.0, 16.0), room)
    wanted = [_label_size(words) if words else None for words in labels]
    for _ in range(_ROUNDS):
        boxes = {name: Box(*at[name], width / 2 + 2, height / 2 + 2) for name, (width, height) in sizes.items()}
        places, clear = place_labels([between(boxes[a], boxes[b]) for a, b in ends], wanted, list(boxes.values()))
        if clear:
            break
        at = {name: (x * _GROWTH, y * _GROWTH) for name, (x, y) in at.items()}
    left, top, *_ = (bound - _MARGIN for bound in _bounds(at, at, sizes))
    at = {name: (x - left, y - top) for name, (x, y) in at.items()}
    moved = [place and place._replace(x=place.x - left, y=place.y - top) for place in places]
    return _Drawing(at, sizes, labels, moved)


def _size(node: Node) -> Size:
    name = text_width(node.name, NAME_SIZE)
    if node.device is None:
        return max(name + 18, 46), 28.0
    lines = _about(node.device)
    width = max(name + 30, *(text_width(line, SMALL_SIZE) for line in lines))  # 30 for the rank
    return width + 20, 30 + _LINE_HEIGHT * len(lines)


def _about(device: Device) -> list[str]:
    name = device.name if device.computes_on == CPU else f"{device.name} on {device.computes_on}"
    return [name] if device.straggler is None else [name, str(device.straggler)]


def _speed(device: Device) -> str:
    return f"on {device.computes_on}: {device}"


def _labels(topology: Topology, link_use: LinkUse | None) -> list[list[str]]:
    """Return the lines of each link's label, [] for a link without one; see MAX_LABELLED."""
    common = _commonest(topology)
    labels = []
    for link in topology.links:
        bandwidth, *others = link.numbers
        lines = [] if str(link) == common else [bandwidth, ", ".join(others)]
        if link_use is not None and link.name in link_use:
            busy, size_bytes = link_use[link.name]
            lines.append(f"{busy * 100:.0f} % busy, {format_size(size_bytes)}")
        labels.append(lines)
    return labels if sum(bool(lines) for lines in labels) <= _MOST_LABELS else [[] for _ in labels]


def _commonest(topology: Topology) -> str | None:
    """Return the commonest numbers of links if there are too many links to label all, else None."""
    several = len(topology.links) > MAX_LABELLED
    return Counter(str(link) for link in topology.links).most_common(1)[0][0] if several else None


def _label_size(lines: list[str]) -> Size:
    return max(text_width(line, SMALL_SIZE) for line in lines) + 8, _LINE_HEIGHT * len(lines) + 4


def _sites(topology: Topology, drawing: _Drawing) -> list[str]:
    """Return a background for each site, with its name in the less crowded top corner.

    Return [] if there are fewer than two sites, or if a background would cover another site's node.
    """
    at, labels = drawing.at, [place for place in drawing.places if place]
    members: dict[str, list[str]] = {}
    for node in topology.nodes.values():
        members.setdefault(node.site or "", []).append(node.name)
    grounds: dict[str, Area] = {}
    for site, names in members.items():
        if site:
            left, top, right, bottom = _bounds(names, at, drawing.sizes)
            grounds[site] = left - _EDGE, top - _CAPTION, right + _EDGE, bottom + _EDGE
    covered = any(
        site != other and left < at[name][0] < right and top < at[name][1] < bottom
        for site, (left, top, right, bottom) in grounds.items()
        for other, names in members.items()
        for name in names
    )
    if len(grounds) < 2 or covered:
        return []
    lines = [(at[link.a], at[link.b]) for link in topology.links]
    return [_site(site, ground, lines, labels) for site, ground in grounds.items()]


def _bounds(names: Iterable[str], at: Mapping[str, Point], sizes: Mapping[str, Size]) -> Area:
    """Return the smallest area that contains the boxes of the nodes *names*."""
    edges = [(*at[name], *sizes[name]) for name in names]
    return (
        min(x - width / 2 for x, _, width, _ in edges),
        min(y - height / 2 for _, y, _, height in edges),
        max(x + width / 2 for x, _, width, _ in edges),
        max(y + height / 2 for _, y, _, height in edges),
    )


def _site(site: str, area: Area, lines: Sequence[tuple[Point, Point]], labels: Sequence[Box]) -> str:
    left, top, right, bottom = area
    rect = f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{bottom - top:.1f}" rx="12"/>'
    half, y = text_width(site, SMALL_SIZE) / 2, top + 11

    def crossed(x: float) -> int:
        box = Box(x, y, half, 8.0)
        return sum(touches(box, line) for line in lines) + sum(overlap(box, label) for label in labels)

    if crossed(right - 10 - half) < crossed(left + 10 + half):
        return f'<g class="site">{rect}{svg_text(right - 10, y, site, "small end")}</g>'
    return f'<g class="site">{rect}{svg_text(left + 10, y, site, "small start")}</g>'


def _line(link: Link, drawing: _Drawing, link_use: LinkUse | None) -> str:
    (ax, ay), (bx, by) = drawing.at[link.a], drawing.at[link.b]
    # A link of at most 1 Mbps is drawn thinnest; each factor of ten makes it wider by a constant.
    width = min(6.0, 1.0 + 0.8 * math.log10(max(link.bandwidth_Bps / 125e3, 1.0)))
    classes = f"link {link.duplex}"
    use = ""
    if link_use is not None:
        busy, size_bytes = link_use.get(link.name, (0.0, 0.0))
        classes += f" busy{sum(busy >= step for step in _BUSY_STEPS)}"
        use = f"; {busy * 100:.1f} % busy, {format_size(size_bytes)}"
    about = escape(f"{link.name}: {link}{use}. {link.source}")
    return (
        f'<line class="{classes}" x1="{ax:.1f}" y1="{ay:.1f}" x2="{bx:.1f}" y2="{by:.1f}" '
        f'stroke-width="{width:.1f}"><title>{about}</title></line>'
    )


def _box(node: Node, drawing: _Drawing, rank: int | None) -> str:
    x, y = drawing.at[node.name]
    width, height = drawing.sizes[node.name]
    shape = (
        f'<rect x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'rx="{6 if node.is_worker else 13}"/>'
    )
    if node.device is None:
        words, about = svg_text(x, y, node.name, "name"), f"{node.kind} {node.name}"
    else:
        lines = _about(node.device)
        top = y - height / 2 + 17
        words = svg_text(x, top, f"{rank} · {node.name}", "name")
        words += "".join(svg_text(x, top + 17 + _LINE_HEIGHT * k, line, "small") for k, line in enumerate(lines))
        about = f"rank {rank}, {node.name}: {_speed(node.device)}. {node.device.source}"
    return f'<g class="{node.kind}"><title>{escape(about)}</title>{shape}{words}</g>'


def _label(lines: list[str], where: Box) -> str:
    top = -_LINE_HEIGHT * (len(lines) - 1) / 2
    words = "".join(svg_text(0, top + _LINE_HEIGHT * k, line, "label") for k, line in enumerate(lines))
    turn = f" rotate({where.turn:.1f})" if where.turn else ""
    width, height = _label_size(lines)
    place = f'x="{-width / 2:.1f}" y="{-height / 2:.1f}" width="{width:.1f}" height="{height:.1f}"'
    under = f'<rect class="under" {place} rx="5"/>'
    return f'<g transform="translate({where.x:.1f} {where.y:.1f}){turn}">{under}{words}</g>'


def _legend(topology: Topology, labels: list[list[str]], link_use: LinkUse | None) -> list[tuple[str, str]]:
    """Return (mark, words) for each line of the legend below the drawing."""
    rows = []
    common = _commonest(topology)
    if not any(labels) and len({str(link) for link in topology.links}) > 1:
        rows.append(("full", "hover over a link to read its numbers"))
    elif common is not None:
        duplex = next(link.duplex for link in topology.links if str(link) == common)
        rows.append((duplex, f"links without numbers: {common}"))
    duplexes = {link.duplex for link in topology.links}
    words = {"half": "half duplex: both ways share it", "free": "contention-free: every flow has all of it"}
    rows += [(kind, text) for kind, text in words.items() if kind in duplexes]
    if link_use is not None:
        rows += [(f"busy{step}", text) for step, text in enumerate(_BUSY_WORDS)]
    line = '<line class="link {}" x1="0" y1="0" x2="{}" y2="0" stroke-width="4"/>'
    return [(line.format(kind, _MARK), text) for kind, text in rows]


def _legend_width(words: str) -> float:
    return _MARK + 8 + text_width(words, SMALL_SIZE)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], classes: str = "table") -> str:
    """Return an HTML table of *rows* without the empty columns."""
    shown = [index for index in range(len(head)) if any(row[index] for row in rows)]
    cells = "".join(f"<th>{escape(head[index])}</th>" for index in shown)
    body = "".join(f"<tr>{''.join(f'<td>{escape(row[index])}</td>' for index in shown)}</tr>" for row in rows)
    return f'<div class="{classes}"><table><tr>{cells}</tr>{body}</table></div>'
