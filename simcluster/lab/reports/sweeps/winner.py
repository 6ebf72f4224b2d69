"""A grid of winners over two swept keys: the colour of a cell is the best value of a third key there.

Each contender is represented by the best of its other swept settings, by the mean over seeds, and only if every seed
got there. A cell is undecided if its seeds disagree on the winner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.colors import hex_to_rgb

from simcluster.lab.reports.figure_style import LINES, styled
from simcluster.lab.reports.sweeps.lines import combination, said, scale_of, short

FULL_LEAD = 2.0
"""A lead by this factor or more has the full colour."""

PALEST, UNDECIDED = 0.72, "#c3cad2"
INK = "#10151b"
GREATEST_WINS = ("accuracy",)


@dataclass(frozen=True)
class Cell:
    """*winner* is None if no contender got there. *lead* is its factor over the second, infinite if it is alone.
    *is_clear*: it is first with every seed. *about* has all contenders in words.
    """

    winner: str | None
    lead: float
    is_clear: bool
    about: str


def _cell(rows: pd.DataFrame | None, of: str, by: str, others: Sequence[str]) -> Cell:
    best: dict[str, pd.Series] = {}
    for name, part in rows.groupby(of, sort=False) if rows is not None else ():
        tried = [
            (combination(others, values), own.set_index("seed")[by])
            for values, own in (part.groupby(list(others), sort=False) if others else [((), part)])
        ]
        full = [(label, numbers) for label, numbers in tried if numbers.notna().all()]
        if full:
            label, numbers = min(full, key=lambda found: _cost(found[1].mean(), by))
            best[combination([of], [name]) + (f" with {label}" if label else "")] = numbers.rename(said(name))
    order = sorted(best, key=lambda label: _cost(best[label].mean(), by))
    if not order:
        return Cell(None, np.nan, True, "not reached")
    lines = [f"{label}: {best[label].mean():.4g}" for label in order]
    first = best[order[0]]
    if len(order) == 1:
        return Cell(str(first.name), np.inf, True, "<br>".join(map(escape, lines)))
    second = best[order[1]]
    ahead = [
        all(_cost(first[seed], by) < _cost(best[other].get(seed, np.inf), by) for other in order[1:])
        for seed in first.index
    ]
    means = first.mean(), second.mean()
    lead = max(means) / min(means) if min(means) > 0 else (1.0 if means[0] == means[1] else np.inf)
    return Cell(str(first.name), float(lead), all(ahead), "<br>".join(map(escape, lines)))


def _cost(number: float, by: str) -> float:
    return -number if by in GREATEST_WINS else number


def draw_winners(table: pd.DataFrame, keys: Sequence[str], x: str, y: str, of: str, by: str) -> go.Figure:
    """Draw the grid: stronger for a larger lead, grey if seeds disagree, empty if no contender got there."""
    across, up = (list(scale_of(table, key)[1]) for key in (x, y))
    others = [key for key in keys if key not in (x, y, of)]
    parts = dict(list(table.groupby([y, x], sort=False)))
    cells = [[_cell(parts.get((row, column)), of, by, others) for column in across] for row in up]
    columns, rows = ([escape(said(value)) for value in values] for values in (across, up))
    figure = go.Figure()
    for index, name in enumerate(map(said, dict.fromkeys(table[of]))):
        own = [[cell if cell.winner == name and cell.is_clear else None for cell in row] for row in cells]
        _add(figure, columns, rows, own, escape(name), LINES[index % len(LINES)])
    undecided = [[cell if cell.winner is not None and not cell.is_clear else None for cell in row] for row in cells]
    _add(figure, columns, rows, undecided, "undecided", UNDECIDED)
    sides = {"type": "category", "showgrid": False, "categoryorder": "array"}
    return styled(
        figure,
        height=170 + 48 * len(rows),
        xaxis={"title": {"text": escape(short(x))}, "categoryarray": columns, **sides},
        yaxis={"title": {"text": escape(short(y))}, "categoryarray": rows, **sides},
    )


def _add(
    figure: go.Figure, columns: list[str], rows: list[str], cells: list[list[Cell | None]], name: str, colour: str
) -> None:
    """Add the cells of one winner and its entry in the legend; nothing if it wins nowhere."""
    if not any(cell for row in cells for cell in row):
        return

    def strength(cell: Cell) -> float:
        return min(1.0, float(np.log(cell.lead) / np.log(FULL_LEAD))) if cell.is_clear else 1.0

    def text(cell: Cell) -> str:
        if not cell.is_clear:
            return "\N{ALMOST EQUAL TO}"
        return "only" if np.isinf(cell.lead) else f"{cell.lead:.{2 if cell.lead < 10 else 0}f}\N{MULTIPLICATION SIGN}"

    # With as much white as still tells it apart: opaque, since what is written on it must be readable.
    pale = [round(part + (255 - part) * PALEST) for part in hex_to_rgb(colour)]
    figure.add_trace(
        go.Heatmap(
            x=columns,
            y=rows,
            z=[[cell and strength(cell) for cell in row] for row in cells],
            zmin=0,
            zmax=1,
            colorscale=[[0, "#{:02x}{:02x}{:02x}".format(*pale)], [1, colour]],
            showscale=False,
            name=name,
            text=[[text(cell) if cell else "" for cell in row] for row in cells],
            texttemplate="%{text}",
            textfont={"color": INK, "size": 12},
            customdata=[["" if cell is None else cell.about for cell in row] for row in cells],
            hovertemplate="%{customdata}<extra></extra>",
            hoverongaps=False,
            xgap=2,
            ygap=2,
        )
    )
    marker = {"symbol": "square", "size": 13, "color": colour}
    figure.add_trace(go.Scatter(x=[None], y=[None], mode="markers", name=name, marker=marker, showlegend=True))
