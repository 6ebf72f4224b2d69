"""A page about a topology: the drawing, and tables of its nodes and links with the source of every number.

This file knows HTML. It must not know how the drawing is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from simcluster.topology.draw import LinkUse, draw_svg
from simcluster.topology.model import Topology
from simcluster.units import format_bandwidth, format_latency

_STYLE = """
:root { color-scheme: light dark; --ink: #1f2430; --faint: #5d6675; --page: #ffffff; --rule: #dde2ea; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8ebf1; --faint: #a3adbd; --page: #14171d; --rule:
#2e3542; } } body { margin: 0 auto; padding: 1.5rem; max-width: 1400px; background: var(--page); color:
var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 0.5rem; }
p { margin: 0.3rem 0 1rem; color: var(--faint); }
.drawing, .table { overflow-x: auto; } .drawing { text-align: center; }
table { border-collapse: collapse; font-size: 0.9rem; width: 100%; }
th, td { text-align: left; padding: 0.3rem 0.9rem 0.3rem 0; border-top: 1px solid var(--rule); vertical-align:
top; } td { white-space: nowrap; } td:last-child { white-space: normal; min-width: 20rem; color: var(--faint);
} th { border-top: 0; font-weight: 600; }
""".strip()


def draw_html(topology: Topology, link_use: LinkUse | None = None) -> str:
    """A whole page that fetches nothing: the drawing, the nodes and the links."""
    ranks = {name: str(rank) for rank, name in enumerate(topology.workers)}
    nodes = [
        (
            ranks.get(node.name, ""),
            node.name,
            node.device.name if node.device else "switch",
            str(node.device or ""),
            node.site or "",
            node.device.source if node.device else "",
        )
        for node in topology.nodes.values()
    ]
    links = [
        (
            link.name,
            link.type or "",
            format_bandwidth(link.bandwidth_Bps),
            format_latency(link.latency_s),
            link.duplex,
            link.source,
        )
        for link in topology.links
    ]
    name = escape(topology.name)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{name}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{name}</h1><p>{escape(topology.description)}</p>"
        f'<div class="drawing">{draw_svg(topology, link_use)}</div>'
        f"<h2>Nodes</h2>{_table(('rank', 'node', 'device', 'what it does', 'site', 'source'), nodes)}"
        f"<h2>Links</h2>{_table(('link', 'type', 'bandwidth', 'latency', 'duplex', 'source'), links)}"
        "</body></html>\n"
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="table"><table><tr>{cells}</tr>{body}</table></div>'
