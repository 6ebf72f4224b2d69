"""A whole plotly figure onto a page of matplotlib: its panels, traces, marks and legend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from simcluster.errors import Problem, UsageError
from simcluster.reports.static.axis import PlainAxis
from simcluster.reports.static.bars import Bars
from simcluster.reports.static.heat import draw_heat
from simcluster.reports.static.marks import Panel, draw_marks
from simcluster.reports.static.scatter import draw_scatter
from simcluster.reports.static.words import plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KNOWN = ("scatter", "bar", "heatmap")
LETTER_IN, MARK_IN = 0.066, 0.45
"""How wide a letter and a mark of the legend are."""

Key = tuple[str, str]


def draw(figure: Any, page: Figure) -> None:
    """Draws all of the plotly *figure*. Raises UsageError for traces of kinds that it does not know, naming them."""
    unknown = dict.fromkeys(trace.type for trace in figure.data if trace.type not in KNOWN)
    if unknown:
        raise UsageError(Problem("figure", f"a trace of the kind {', '.join(unknown)}", f"only {', '.join(KNOWN)}"))
    panels = _panels(figure, page)
    entries = _traces(figure, panels)
    small = [
        text for panel in panels.values() for text in (panel.x.apply(panel.axes), panel.y.apply(panel.axes)) if text
    ]
    draw_marks(figure, panels)  # on axes that are set up: what stands on them must not change them
    if small:
        page.supxlabel("\n".join(dict.fromkeys(small)), fontsize=6.5, color="#4a525a")
    if figure.layout.title.text:
        page.suptitle(plain(figure.layout.title.text), fontsize=9)
    _legend(figure, page, entries)


def _key(trace: Any) -> Key:
    return trace.xaxis or "x", trace.yaxis or "y"


def _panels(figure: Any, page: Figure) -> dict[Key, Panel]:
    """Each pair of axes that traces use, beside and below each other as their domains are."""
    keys = sorted({_key(trace) for trace in figure.data}) or [("x", "y")]
    lefts, tops = ({key: _domain(figure, key[side])[0] for key in keys} for side in (0, 1))
    columns, rows = sorted(set(lefts.values())), sorted(set(tops.values()), reverse=True)
    grid = page.add_gridspec(len(rows), len(columns))
    panels = {}
    for key in keys:
        axes = page.add_subplot(grid[rows.index(tops[key]), columns.index(lefts[key])])
        own = [trace for trace in figure.data if _key(trace) == key]
        x = PlainAxis(_axis(figure, key[0]), _values(own, "x"), is_x=True)
        y = PlainAxis(_axis(figure, key[1]), _values(own, "y"), is_x=False)
        panels[key] = Panel(axes, x, y)
    return panels


def _axis(figure: Any, name: str) -> Any:
    return figure.layout[f"{name[0]}axis{name[1:]}"]


def _domain(figure: Any, name: str) -> tuple[float, float]:
    domain = _axis(figure, name).domain
    return (float(domain[0]), float(domain[1])) if domain is not None else (0.0, 1.0)


def _values(traces: Iterable[Any], side: str) -> list[list[Any]]:
    return [list(values) for trace in traces if (values := trace[side]) is not None]


def _traces(figure: Any, panels: Mapping[Key, Panel]) -> dict[str, Any]:
    """Draws all traces; returns what a legend shows by name."""
    bars = {
        key: Bars([t for t in figure.data if t.type == "bar" and _key(t) == key], panel, figure.layout.barmode)
        for key, panel in panels.items()
    }
    entries: dict[str, Any] = {}
    for index, trace in enumerate(figure.data):
        panel = panels[_key(trace)]
        handle = None
        if trace.type == "scatter":
            handle = draw_scatter(trace, panel, index)
        elif trace.type == "bar":
            handle = bars[_key(trace)].draw(trace, index)
        else:
            draw_heat(trace, panel)
        if handle is not None and trace.name and trace.showlegend is not False:
            entries.setdefault(plain(trace.name), handle)
    return entries


def _legend(figure: Any, page: Figure, entries: Mapping[str, Any]) -> None:
    asked = figure.layout.showlegend
    alone = any(trace.showlegend for trace in figure.data)
    if not entries or asked is False or (asked is None and len(entries) < 2 and not alone):
        return
    widest_in = max(len(name) for name in entries) * LETTER_IN + MARK_IN
    columns = max(1, min(len(entries), int(page.get_figwidth() / widest_in)))
    page.legend(
        list(entries.values()), list(entries), loc="outside upper left", ncols=columns, columnspacing=1.2,
        handlelength=1.6, borderaxespad=0.2,
    )  # fmt: skip
