"""Draw a grid over two swept keys, in which the colour of a cell is the best value of a third key.

Each contender is represented by the best combination of its other swept settings, by mean over
seeds, among those for which every seed has the measure. A cell is undecided if its seeds disagree
on the winner.
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
"""Least lead, as a factor, for which a cell has the full colour."""

PALEST = 0.72
"""Share of white in the palest colour, for the smallest lead."""

UNDECIDED = "#c3cad2"
INK = "#10151b"
GREATEST_WINS = ("accuracy",)


@dataclass(frozen=True)
class Cell:
    """A cell of the grid; *winner* is None if no contender has the measure with every seed.

    *lead* is the factor by which the winner beats the second, infinite if there is no second.
    *is_clear* says whether the winner is first with every seed. *about* lists all contenders.
    """

    winner: str | None
    lead: float
    is_clear: bool
    about: str


def _cell(rows: pd.DataFrame | None, of: str, by: str, others: Sequence[str]) -> Cell:
    """Return the cell for *rows*: the values of *of*, ranked by the measure *by*.

    Each value is represented by its best combination of the keys *others*.
    """
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
    lead = 1.0 if means[0] == means[1] else np.inf
    if min(means) > 0:
        lead = max(means) / min(means)
    return Cell(str(first.name), float(lead), all(ahead), "<br>".join(map(escape, lines)))


def _cost(number: float, by: str) -> float:
    return -number if by in GREATEST_WINS else number


def draw_winners(table: pd.DataFrame, keys: Sequence[str], x: str, y: str, of: str, by: str) -> go.Figure:
    """Draw the grid: a larger lead has a stronger colour; a cell is grey if its seeds disagree."""
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
    """Add the cells that *name* won and its entry in the legend; do nothing if there are none."""
    if not any(cell for row in cells for cell in row):
        return

    def strength(cell: Cell) -> float:
        return min(1.0, float(np.log(cell.lead) / np.log(FULL_LEAD))) if cell.is_clear else 1.0

    def text(cell: Cell) -> str:
        if not cell.is_clear:
            return "\N{ALMOST EQUAL TO}"
        if np.isinf(cell.lead):
            return "only"
        digits = 2 if cell.lead < 10 else 0
        return f"{cell.lead:.{digits}f}\N{MULTIPLICATION SIGN}"

    # Mix with white instead of making cells translucent, so that their text is readable on any
    # page.
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
