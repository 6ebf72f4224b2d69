"""A page about a topology: the drawing, and tables of its nodes and links with the source of every number."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from simcluster.topology.draw.draw import LinkUse, draw_svg
from simcluster.topology.draw.style import PAGE_STYLE
from simcluster.topology.model.model import Topology
from simcluster.units import format_bandwidth, format_latency


def draw_html(topology: Topology, link_use: LinkUse | None = None) -> str:
    """Return a self-contained page: the drawing, the nodes and the links."""
    ranks = {name: str(rank) for rank, name in enumerate(topology.workers)}
    nodes = []
    for node in topology.nodes.values():
        words = (node.device.name if node.device else node.kind, str(node.device or ""))
        nodes.append((ranks.get(node.name, ""), node.name, *words, node.site or "", node.address or ""))
    links = []
    for link in topology.links:
        numbers = (format_bandwidth(link.bandwidth_Bps), format_latency(link.latency_s), link.duplex)
        links.append((link.name, link.type or "", *numbers))
    devices = [node.device for node in topology.nodes.values() if node.device is not None]
    sources = [(device.name, device.source) for device in devices]
    sources += [(link.type or "other links", link.source) for link in topology.links]
    name = escape(topology.name)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{name}</title><style>{PAGE_STYLE}</style></head><body>"
        f"<h1>{name}</h1><p>{escape(topology.description)}</p>"
        f'<div class="drawing">{draw_svg(topology, link_use)}</div>'
        f"<h2>Nodes</h2>{_table(('rank', 'node', 'device', 'speed and memory', 'site', 'address'), nodes)}"
        f"<h2>Links</h2>{_table(('link', 'type', 'bandwidth', 'latency', 'duplex'), links)}"
        "<h2>Where the numbers come from</h2>"
        f"{_table(('device or link', 'source'), list(dict.fromkeys(sources)), 'table sources')}"
        "</body></html>\n"
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], classes: str = "table") -> str:
    """Return a table without its empty columns."""
    shown = [index for index in range(len(head)) if any(row[index] for row in rows)]
    cells = "".join(f"<th>{escape(head[index])}</th>" for index in shown)
    body = "".join(f"<tr>{''.join(f'<td>{escape(row[index])}</td>' for index in shown)}</tr>" for row in rows)
    return f'<div class="{classes}"><table><tr>{cells}</tr>{body}</table></div>'
