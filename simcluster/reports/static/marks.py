"""Annotations and shapes of a plotly figure: lines and bands across, words at a place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from simcluster.errors import Problem, UsageError
from simcluster.reports.static.axis import PlainAxis
from simcluster.reports.static.words import colour, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.transforms import Transform

PT_PER_PX = 0.67
DASHES = {None: "-", "solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}


class Panel(NamedTuple):
    """One of a figure's plots: matplotlib's *axes*, and the plotly axes *x* and *y* that it shows."""

    axes: Axes
    x: PlainAxis
    y: PlainAxis


def draw_marks(figure: Any, panels: Mapping[tuple[str, str], Panel]) -> None:
    """All of *figure*'s shapes and annotations. Raises UsageError for a shape that is neither line nor rectangle."""
    for shape in figure.layout.shapes:
        _shape(shape, _panel(shape, panels))
    for annotation in figure.layout.annotations:
        _annotation(annotation, _panel(annotation, panels))


def _panel(mark: Any, panels: Mapping[tuple[str, str], Panel]) -> Panel:
    """That of the mark's axes; of one that stands on the whole figure the first."""
    x, y = ((ref or "paper").removesuffix(" domain") for ref in (mark.xref, mark.yref))
    fitting = [panel for key, panel in panels.items() if x in (key[0], "paper") and y in (key[1], "paper")]
    return (fitting or list(panels.values()))[0]


def _is_share(ref: str | None) -> bool:
    """Whether a place is told as a share of the plot; by default it is one of an axis."""
    return ref is not None and (ref == "paper" or ref.endswith(" domain"))


def _transform(mark: Any, axes: Axes) -> Transform:
    from matplotlib.transforms import blended_transform_factory

    return blended_transform_factory(
        axes.transAxes if _is_share(mark.xref) else axes.transData,
        axes.transAxes if _is_share(mark.yref) else axes.transData,
    )


def _shape(shape: Any, panel: Panel) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Rectangle

    transform, order = _transform(shape, panel.axes), 0.5 if shape.layer == "below" else 2.5
    width = PT_PER_PX * (2 if shape.line.width is None else shape.line.width)
    ink = colour(shape.line.color or "#444444", shape.opacity)
    if shape.type == "line":
        line = Line2D(
            [shape.x0, shape.x1], [shape.y0, shape.y1], transform=transform, color=ink, linewidth=width, zorder=order,
            linestyle=DASHES[shape.line.dash],
        )  # fmt: skip
        panel.axes.add_line(line)
    elif shape.type == "rect":
        fill = colour(shape.fillcolor or "rgba(0,0,0,0)", shape.opacity)
        box = Rectangle(
            (shape.x0, shape.y0), shape.x1 - shape.x0, shape.y1 - shape.y0, transform=transform, facecolor=fill,
            edgecolor=ink if width else "none", linewidth=width, zorder=order,
        )  # fmt: skip
        panel.axes.add_patch(box)
    else:
        raise UsageError(Problem("figure", f"a shape of the type {shape.type}", "lines and rectangles only"))


def _annotation(annotation: Any, panel: Panel) -> None:
    x = annotation.x if _is_share(annotation.xref) else panel.x.place(annotation.x)
    y = annotation.y if _is_share(annotation.yref) else panel.y.place(annotation.y)
    arrow = annotation.showarrow is not False
    shift = (annotation.ax or 0, -(annotation.ay if annotation.ay is not None else -30)) if arrow else (0, 0)
    shift = (shift[0] + (annotation.xshift or 0), shift[1] + (annotation.yshift or 0))
    line = {"arrowstyle": "-", "color": colour(annotation.arrowcolor or "#80888f"), "linewidth": 0.8}
    panel.axes.annotate(
        plain(annotation.text),
        (x, y),
        xytext=(shift[0] * PT_PER_PX, shift[1] * PT_PER_PX),
        xycoords=_transform(annotation, panel.axes),
        textcoords="offset points",
        ha={"left": "left", "right": "right"}.get(annotation.xanchor, "center"),
        va={"top": "top", "bottom": "bottom"}.get(annotation.yanchor, "bottom" if arrow else "center"),
        fontsize=PT_PER_PX * (annotation.font.size or 12),
        arrowprops=line if arrow else None,
        annotation_clip=False,
    )
