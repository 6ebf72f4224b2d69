"""The figures that `simcluster figure` can draw of a folder, by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from simcluster.errors import Problem, UsageError, raise_all
from simcluster.lab.reports.figure_style import drawn_by
from simcluster.lab.reports.plots import consensus, convergence
from simcluster.lab.what_if.outcome import is_whatif, load_whatif
from simcluster.results import compare, load_run, load_sweep
from simcluster.runs.folder import RunFolder
from simcluster.runs.sweep.sweep_folder import is_sweep
from simcluster.spelling import nearest

if TYPE_CHECKING:
    import plotly.graph_objects as go

Draw = Callable[..., "go.Figure"]


def figures_of(folder: Path, others: Sequence[Path] = ()) -> dict[str, Draw]:
    """Return name -> figure for every figure of *folder*.

    With *others*, return the figures that compare all these runs. Raise UsageError if a folder
    holds no run, sweep or what-if.
    """
    if others:
        runs = [load_run(path) for path in (folder, *others)]
        alike = _figures(compare(runs[0], *runs[1:]).plot)
        return {"convergence": partial(convergence, runs), "consensus": partial(consensus, runs), **alike}
    if is_sweep(folder):
        return _figures(load_sweep(folder).plot)
    if is_whatif(folder):
        return _figures(load_whatif(folder))
    return _figures(load_run(folder).plot)


def check_named(figures: Mapping[str, Draw], name: str, settings: Mapping[str, Any]) -> None:
    """Raise UsageError, with all problems, if the figure *name* does not accept *settings*."""
    import pydantic

    if name not in figures:
        raise UsageError("figure", repr(name), f"a figure of this folder: {nearest(name, figures)}")
    draw = figures[name]
    known = inspect.signature(draw).parameters
    hints = get_type_hints(_function(draw), localns={"RunFolder": RunFolder})
    problems = [
        Problem(key, f"unknown setting of {name}", nearest(key, known) if known else "none: it has no settings")
        for key in settings
        if key not in known
    ]
    problems += [
        Problem(key, "nothing", f"{key}=VALUE, which {name} needs")
        for key, parameter in known.items()
        if parameter.default is parameter.empty and key not in settings
    ]
    for key in [key for key in settings if key in known]:
        try:
            pydantic.TypeAdapter(hints[key]).validate_python(settings[key])
        except pydantic.ValidationError as error:
            words = error.errors()[0]["msg"].removeprefix("Input should be ").lower()
            problems.append(Problem(key, repr(settings[key]), words))
    raise_all(problems)


def about(draw: Draw) -> str:
    """Return the first sentence of a figure's docstring, followed by its settings in parentheses."""
    text = " ".join((inspect.getdoc(_function(draw)) or "").replace("*", "").split())
    settings = ", ".join(inspect.signature(draw).parameters)
    return text.partition(". ")[0].rstrip(".") + (f" ({settings})" if settings else "")


def _function(draw: Draw) -> Callable[..., Any]:
    return draw.func if isinstance(draw, partial) else draw


def _figures(plots: object) -> dict[str, Draw]:
    return {name: getattr(plots, name) for name in drawn_by(type(plots))}
