"""Draw the topology, with the share of time for which each link is busy."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import plotly.graph_objects as go

from simcluster.lab.reports.figure_style import COMPUTE, RECV, styled
from simcluster.runs import words
from simcluster.topology import Link, Node, Topology
from simcluster.topology.draw.layout import Point, place

MAX_NAMED = 60
"""Limit on the nodes whose names are shown; with more, a name appears only on hover."""
MAX_TOLD = 16
"""Limit on the links whose shares are shown; with more, a share appears only on hover."""
ALONG = 0.44
"""Position of the share along a link, slightly off the middle, where diagonals cross."""

Use = Mapping[str, Mapping[str, Any]]
"""Link -> its bytes and busy_fraction, as in a run's summary."""


STEPS = (
    (0.05, "under 5 %", "#9aa5b1", 1.5),
    (0.25, "5 to 25 %", "#5b9bd5", 3.0),
    (0.5, "25 to 50 %", "#2a9d74", 4.5),
    (0.8, "50 to 80 %", "#e0a12b", 6.5),
    (float("inf"), "over 80 % busy", "#d6453d", 9.0),
)
"""(upper limit of the busy share, label, colour, width) of a link, by rising limits."""


def link_map(topology: Topology, use: Use, computing: Mapping[str, float]) -> go.Figure:
    """Draw the topology; colour and width of a link show its busy share.

    *computing* maps each node to the share of the run for which its device computed. Hovering near
    the middle of a link shows its properties and the bytes that it carried.
    """
    placed = place(list(topology.nodes), [(link.a, link.b) for link in topology.links])
    # Round, so that lines that are almost straight become straight.
    at = {name: (round(x, 6), round(y, 6)) for name, (x, y) in placed.items()}
    figure = go.Figure()
    used = [link for link in topology.links if link.name in use]
    low = 0.0
    for below, name, colour, width in STEPS:
        own = [link for link in used if low <= use[link.name]["busy_fraction"] < below]
        if own:
            x, y = ([place for link in own for place in (at[link.a][i], at[link.b][i], None)] for i in (0, 1))
            line = {"color": colour, "width": width}
            figure.add_scatter(x=x, y=y, mode="lines", name=name, line=line, hoverinfo="skip")
        low = below
    figure.add_trace(_middles(used, use, at))
    for workers in (False, True):
        nodes = [node for node in topology.nodes.values() if node.is_worker is workers]
        figure.add_trace(_nodes(nodes, workers, at, computing))
    xs, ys = [x for x, _ in at.values()], [y for _, y in at.values()]
    wide, high = max(xs) - min(xs) or 1.0, max(ys) - min(ys) or 0.5
    hidden = {"visible": False, "showgrid": False, "zeroline": False}
    return styled(
        figure,
        height=round(min(480, max(240, 120 + 640 * high / max(wide, high)))),
        hovermode="closest",
        xaxis={**hidden, "range": [min(xs) - 0.14 * wide, max(xs) + 0.14 * wide]},
        yaxis={**hidden, "range": [max(ys) + 0.2 * high, min(ys) - 0.22 * high]},
        margin={"l": 8, "r": 8, "t": 52, "b": 8},
        showlegend=True,
    )


def _middles(links: list[Link], use: Use, at: Mapping[str, Point]) -> go.Scatter:
    ends = [(at[link.a], at[link.b]) for link in links]
    middles = [(ax + (bx - ax) * ALONG, ay + (by - ay) * ALONG) for (ax, ay), (bx, by) in ends]
    told = len(links) <= MAX_TOLD
    shares = [words.share(use[link.name]["busy_fraction"]) for link in links]
    return go.Scatter(
        x=[x for x, _ in middles],
        y=[y for _, y in middles],
        mode="markers+text" if told else "markers",
        marker={"size": 16, "color": "rgba(128,136,146,0)"},
        text=shares if told else None,
        textposition=[
            "middle right" if abs(bx - ax) < abs(by - ay) else "bottom center" for (ax, ay), (bx, by) in ends
        ],
        textfont={"size": 11},
        hovertext=[
            f"{escape(link.name)}: busy {share}, {words.size(use[link.name]['bytes'])}<br>{escape(str(link))}"
            for link, share in zip(links, shares, strict=True)
        ],
        hoverinfo="text",
        showlegend=False,
    )


def _nodes(nodes: list[Node], workers: bool, at: Mapping[str, Point], computing: Mapping[str, float]) -> go.Scatter:
    named = len(at) <= MAX_NAMED
    middle = sum(y for _, y in at.values()) / len(at) + 1e-6
    hovers = []
    for node in nodes:
        share = f", computing {words.share(computing[node.name])}" if node.name in computing else ""
        hovers.append(escape(f"{node.name}: {node.device.name}{share}" if node.device else f"{node.kind} {node.name}"))
    return go.Scatter(
        x=[at[node.name][0] for node in nodes],
        y=[at[node.name][1] for node in nodes],
        mode="markers+text" if named else "markers",
        marker={
            "size": 18 if workers else 11,
            "color": COMPUTE if workers else RECV,
            "symbol": "circle" if workers else "square",
            "line": {"width": 0},
        },
        text=[escape(node.name) for node in nodes] if named else None,
        textposition=["top center" if at[node.name][1] <= middle else "bottom center" for node in nodes],
        hovertext=hovers,
        hoverinfo="text",
        showlegend=False,
    )
