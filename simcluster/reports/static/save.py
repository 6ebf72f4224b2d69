"""`simcluster.save_figure`: a plotly figure of ours as a file for a paper.

The bytes depend on the figure and on matplotlib's version alone: no dates, no random ids.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcluster.errors import Problem, UsageError
from simcluster.given_path import given_path
from simcluster.inside import write_whole

if TYPE_CHECKING:
    import plotly.graph_objects as go

WIDTH_IN = 6.5
"""Of a page's text."""

PX_PER_IN = 108.0
"""So large a figure of ours is on paper: what is 702 pixels wide in a browser fills the text's width."""

METADATA: dict[str, dict[str, Any]] = {
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    ".png": {"Software": None},
}
STYLE: dict[str, Any] = {
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.size": 8.0,
    "axes.titlesize": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#80888f",
    "axes.axisbelow": True,
    "axes.linewidth": 0.6,
    "axes.grid": False,
    "grid.color": "#e2e5e8",
    "grid.linewidth": 0.6,
    "xtick.color": "#4a525a",
    "ytick.color": "#4a525a",
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "text.parse_math": False,  # names may hold dollars
    "svg.fonttype": "none",
    "svg.hashsalt": "simcluster",
    "pdf.fonttype": 42,
    "savefig.dpi": 200,
    "figure.facecolor": "white",
}


def save_figure(
    figure: go.Figure, path: str | os.PathLike[str], *, width_in: float = WIDTH_IN, height_in: float | None = None
) -> Path:
    """Draws *figure* by matplotlib (extra `plot-static`) and writes it to *path*: .svg, .pdf or .png. Returns *path*.

    *height_in*, if not given, keeps the figure's own. Raises UsageError if matplotlib is missing, for another suffix,
    for a size that is none, and for a trace of a kind that none of our figures has.
    """
    target = given_path(path, "path")
    _check(target, width_in, height_in)
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError(
            Problem("matplotlib", "not installed", "it, to draw for paper: pip install 'simcluster[plot-static]'")
        ) from None
    from simcluster.reports.static.draw import draw

    height_in = height_in or (figure.layout.height or 420) / PX_PER_IN
    content = io.BytesIO()
    with mpl.rc_context({**mpl.rcParamsDefault, **STYLE}):
        page = Figure(figsize=(width_in, height_in), layout="constrained")
        draw(figure, page)
        page.savefig(content, format=target.suffix[1:].lower(), metadata=METADATA[target.suffix.lower()])
    _write(target, content.getvalue())
    return target


def _check(target: Path, width_in: float, height_in: float | None) -> None:
    problems = []
    if target.suffix.lower() not in METADATA:
        problems.append(Problem("path", repr(str(target)), f"a name that ends in {', '.join(METADATA)}"))
    elif not target.absolute().parent.is_dir():
        problems.append(Problem("path", repr(str(target)), f"a file in a folder that exists, not in {target.parent}"))
    problems += [
        Problem(name, repr(size_in), "inches, from 1 to 50")
        for name, size_in in (("width_in", width_in), ("height_in", height_in))
        if size_in is not None and not 1 <= size_in <= 50
    ]
    if problems:
        raise UsageError(problems)


def _write(target: Path, content: bytes) -> None:
    """All of it or nothing."""
    try:
        write_whole(target.parent, target.name, content=content)
    except OSError as error:
        raise UsageError(Problem("path", str(target), f"a file that can be written ({error.strerror})")) from None
