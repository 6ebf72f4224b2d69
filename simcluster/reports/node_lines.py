"""One thin line for each node, behind the one that is of all of them."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import pandas as pd
import plotly.graph_objects as go

from simcluster.reports.figure_style import LINES, rgba
from simcluster.reports.x_axis import XScale

if TYPE_CHECKING:
    from simcluster.runs.folder import RunFolder

MAX_NODE_LINES = 12
MAX_POINTS = 1500


def node_lines(run: RunFolder, scale: XScale, rows: pd.DataFrame, name: str) -> list[go.Scatter]:
    """*rows* of each node, under one *name*; none if the nodes are too many to be told apart."""
    nodes = list(dict.fromkeys(rows["node"]))
    if len(nodes) > MAX_NODE_LINES:
        return []
    return [
        go.Scatter(
            x=scale.of(run, own),
            y=own["value"].to_numpy(),
            name=name,
            legendgroup=name,
            showlegend=index == 0,
            mode="lines",
            line={"width": 1, "color": rgba(LINES[0], 0.6)},
            meta=escape(str(node)),
            hovertemplate="%{meta}: %{y:.4g}<extra></extra>",
        )
        for index, node in enumerate(nodes)
        for own in [thinned(rows[rows["node"] == node])]
    ]


def thinned(rows: pd.DataFrame) -> pd.DataFrame:
    """Every k-th row and the last, so that a long run stays light."""
    stride = -(-len(rows) // MAX_POINTS)
    return rows if stride <= 1 else pd.concat([rows.iloc[::stride], rows.iloc[[-1]]])
