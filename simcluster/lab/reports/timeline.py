"""Draw the nodes' activity: the spans in a short window, and the devices' busy shares.

Spans are never merged, since merged spans would show an idle device as busy. If a window has too
many spans, the figure ends earlier and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
import plotly.graph_objects as go

from simcluster.lab.reports.figure_style import COMPUTE, FAULT, RECV, SEND, rgba, styled
from simcluster.lab.reports.scales import time_scale
from simcluster.lab.reports.sections.activity import MAX_BANDS, ActivitySpans
from simcluster.lab.reports.sections.coverage import busy_shares, rest_shares
from simcluster.runs import words
from simcluster.runs.record import Span
from simcluster.runs.trace import Band, nanoseconds

MAX_NODES = 40
LANES = {
    "compute": ("computing", COMPUTE, -0.24, 0.36),
    "send": ("sending", SEND, 0.06, 0.2),
    "recv": ("waiting to receive", RECV, 0.28, 0.2),
}
"""Kind of a span -> its name, its colour, and the offset and height of its bars in a node's row."""


def gantt(activity: ActivitySpans, start_s: float, end_s: float, max_bars: int) -> go.Figure:
    """Draw a row per node, with a bar for each span between *start_s* and *end_s*.

    Only the first *max_bars* spans are drawn.
    """
    first_ns, last_ns = nanoseconds(start_s), nanoseconds(end_s)
    window = []
    for rank, span in activity.spans:
        # Compare integers: a rounding error could make a span overlap a window that it only
        # touches.
        from_ns, to_ns = nanoseconds(span.start_s), nanoseconds(span.end_s)
        if rank < MAX_NODES and from_ns < min(to_ns, last_ns) and to_ns > first_ns:
            window.append((rank, span))
    window.sort(key=lambda row: (row[1].start_s, row[0]))
    if len(window) > max_bars:
        end_s = max(window[max_bars][1].start_s, start_s)
        window = [(rank, span) for rank, span in window[:max_bars] if span.start_s < end_s or end_s == start_s]
    unit_s, unit = time_scale(end_s)
    figure = go.Figure()
    for kind in LANES:
        figure.add_trace(_bars(activity, [row for row in window if row[1].kind == kind], kind, unit_s))
    _draw_bands(figure, activity.faults, start_s, end_s, unit_s)
    shown = list(activity.names[:MAX_NODES])
    bare = {"showgrid": False, "zeroline": False}
    caption = _cut_words(activity, start_s, end_s, len(window))
    return styled(
        figure,
        barmode="overlay",
        height=110 + 46 * len(shown),
        xaxis={
            "title": {"text": f"time ({unit})<br><span style='font-size:11px'>{caption}</span>"},
            "range": [start_s / unit_s, end_s / unit_s],
        },
        yaxis={"tickvals": list(range(len(shown))), "ticktext": shown, "range": [len(shown) - 0.45, -0.55], **bare},
    )


def _bars(activity: ActivitySpans, rows: list[tuple[int, Span]], kind: str, unit_s: float) -> go.Bar:
    name, colour, offset, width = LANES[kind]
    texts = []
    for rank, span in rows:
        peer = ""
        if 0 <= span.peer < len(activity.names):
            peer = f" {'to' if kind == 'send' else 'from'} {activity.names[span.peer]}"
        size = f", {words.size(span.size_bytes)}" if span.size_bytes else ""
        lasted = f"{words.seconds(span.end_s - span.start_s)} from {words.seconds(span.start_s)}"
        texts.append(f"{activity.names[rank]}: {name} {escape(span.tag)}{peer}<br>{lasted}{size}")
    return go.Bar(
        name=name,
        orientation="h",
        y=[rank + offset + width / 2 for rank, _ in rows],
        base=[span.start_s / unit_s for _, span in rows],
        x=[(span.end_s - span.start_s) / unit_s for _, span in rows],
        width=width,
        offset=-width / 2,
        marker={"color": colour, "line": {"width": 0}},
        opacity=0.9,
        hovertext=texts,
        hoverinfo="text",
    )


def _draw_bands(figure: go.Figure, shown: Sequence[Band], start_s: float, end_s: float, unit_s: float) -> None:
    visible = [band for band in shown if band.start_s < end_s and band.end_s >= start_s][:MAX_BANDS]
    named: set[str] = set()
    for band in visible:
        text = {} if band.label in named else {"annotation_text": escape(band.label), "annotation_position": "top left"}
        named.add(band.label)
        if band.is_moment:
            figure.add_vline(x=band.start_s / unit_s, line={"color": FAULT, "width": 2, "dash": "dot"}, **text)
        else:
            x0, x1 = max(band.start_s, start_s) / unit_s, min(band.end_s, end_s) / unit_s
            figure.add_vrect(x0=x0, x1=x1, fillcolor=rgba(FAULT, 0.14), line_width=0, layer="below", **text)


def _cut_words(activity: ActivitySpans, start_s: float, end_s: float, bars: int) -> str:
    parts = []
    if start_s > 0 or end_s < activity.elapsed_s:
        part = "the first" if start_s == 0 else f"{words.seconds(start_s)} to"
        parts.append(f"{part} {words.seconds(end_s)} of {words.seconds(activity.elapsed_s)}")
    if activity.rests:
        parts.append("each node's first spans only, since the run has too many")
    if len(activity.names) > MAX_NODES:
        parts.append(f"the first {MAX_NODES} of {len(activity.names)} nodes")
    return ", ".join([*parts, words.plural(bars, "span")])


def busy(activity: ActivitySpans, bins: int = 240) -> go.Figure:
    """Draw the share of time for which each device computes, in *bins* equal parts of the run.

    The scale of colours ends at the busiest part, so that mostly idle devices differ visibly, too.
    """
    unit_s, unit = time_scale(activity.elapsed_s)
    edges_s = np.linspace(0.0, activity.elapsed_s, bins + 1)
    by_rank: list[list[Span]] = [[] for _ in activity.names]
    for rank, span in activity.spans:
        by_rank[rank].append(span)
    rows = [
        busy_shares(spans, edges_s) + rest_shares(activity.rests.get(rank), edges_s)
        for rank, spans in enumerate(by_rank)
    ]
    percents = np.round(np.array(rows) * 100, 1)
    most = float(percents.max(initial=0.0))
    top = next((limit for limit in (1.0, 2.0, 5.0, 10.0, 20.0, 50.0) if 0 < most <= limit), 100.0)
    middles = (edges_s[:-1] + edges_s[1:]) / 2 / unit_s
    figure = go.Figure(
        go.Heatmap(
            z=percents,
            x=np.round(middles, 6),
            y=list(activity.names),
            zmin=0,
            zmax=top,
            # Colours change fast near 0: a device that works 5 % of the time must not look idle.
            colorscale=[[share, rgba(COMPUTE, depth)] for share, depth in ((0, 0.06), (0.05, 0.2), (0.3, 0.5), (1, 1))],
            colorbar={"title": {"text": "busy"}, "ticksuffix": " %", "thickness": 10, "len": 1, "outlinewidth": 0},
            hovertemplate=f"%{{y}} at %{{x:.4g}} {unit}: busy %{{z:.0f}} %<extra></extra>",
            ygap=2 if len(rows) <= 60 else 0,
        )
    )
    _draw_bands(figure, activity.faults, 0.0, activity.elapsed_s, unit_s)
    return styled(
        figure,
        height=110 + min(34 * len(rows), 1600 if len(rows) <= 64 else 800),
        xaxis={"title": {"text": f"time ({unit})"}, "showgrid": False},
        yaxis={"autorange": "reversed", "showgrid": False, "type": "category"},
        margin={"t": 16},
    )
