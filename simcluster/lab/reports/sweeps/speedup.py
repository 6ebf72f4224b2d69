"""Compute and draw speed-up and efficiency against a swept key.

The speed-up is the gain over the smallest value of the key; the efficiency is the speed-up divided
by the growth of the resources. With equal steps per rank, more ranks do more work, so runs are
compared by work per second. Runs that reach a target have equal results, so their times are
compared directly. Speed-up and efficiency are computed seed by seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from simcluster.errors import UsageError
from simcluster.lab.reports.figure_style import measure_axis, named, styled, titled
from simcluster.lab.reports.sweeps.figures import MARK, draw_lines, known
from simcluster.lab.reports.sweeps.lines import SweptLine, SweptScale, first_of, groups, others_than, scale_of
from simcluster.runs.calls import SCRIPT
from simcluster.runs.folder import RunFolder, size_of

DASHED = {"width": 1.5, "color": MARK, "dash": "dash"}

By = Literal["time_to_target_s", "elapsed_s"]


@dataclass(frozen=True)
class SpeedUps:
    """The speed-ups: heights of *lines* are ratios to the value at the line's first known place.

    *ideal* has the proportional factors, None if unknown. *cut* has a sentence if lines are left
    out.
    """

    scale: SweptScale
    lines: list[SweptLine]
    ideal: list[list[float]] | None
    by: By
    cut: list[str]


def speed_ups(table: pd.DataFrame, keys: Sequence[str], runs: Sequence[RunFolder | None], x: str, by: By) -> SpeedUps:
    """Return the speed-ups of *runs*, the rows of *table*, against the key *x*.

    Raise UsageError if runs are not comparable: they stop by time, or their samples are unknown.
    """
    rates = [_work(run, by) / time_s if run and time_s else np.nan for run, time_s in zip(runs, table[by], strict=True)]
    rows = table.assign(nodes=_nodes(runs), rate=rates)
    scale, place = scale_of(table, x)
    by_nodes = counts_nodes(table, runs, x)
    lines, ideal = [], []
    parts, cut = first_of(groups(rows, others_than(table, keys, x)))
    for label, part in parts:
        part = part.assign(place=part[x].map(place))
        by_seed = part.pivot_table("rate", "place", "seed", dropna=False, sort=False).reindex(scale.places)
        whole = by_seed.dropna()
        ratios = (by_seed / whole.iloc[0]) if len(whole) else by_seed * np.nan
        ratios[ratios.isna().any(axis=1)] = np.nan
        lines.append(SweptLine(label, list(ratios.mean(axis=1)), list(ratios.min(axis=1)), list(ratios.max(axis=1))))
        sizes = part.groupby("place", sort=False)["nodes"].first()
        grows = None  # no proportional speed-up, unless the key counts nodes or is a number
        if by_nodes:
            grows = sizes.reindex(scale.places)
        elif not scale.is_category and min(scale.places) > 0:
            grows = pd.Series(scale.places, index=scale.places, dtype=float)
        first = whole.index[0] if len(whole) else scale.places[0]
        ideal.append([float(value) for value in grows / grows[first]] if grows is not None else [])
    return SpeedUps(scale, lines, None if not all(ideal) else ideal, by, cut)


def counts_nodes(table: pd.DataFrame, runs: Sequence[RunFolder | None], x: str) -> bool:
    """Return whether the key *x* determines the number of nodes, and the number varies."""
    rows = table.assign(nodes=_nodes(runs))
    return bool((rows.groupby(x, sort=False)["nodes"].nunique() == 1).all() and rows["nodes"].nunique() > 1)


def _nodes(runs: Sequence[RunFolder | None]) -> list[float]:
    return [size_of(run.summary) if run is not None else np.nan for run in runs]


def _work(run: RunFolder, by: By) -> float:
    """Return the amount of work of *run*, by which the speeds of a sweep's runs are compared.

    It is the number of samples or epochs, or 1 if *by* is the time to the target.
    """
    if by == "time_to_target_s":
        return 1.0
    if run.summary.get("algorithm") == SCRIPT:
        why = "this compares samples per second, and only a script knows its samples"
        works = "draw `simcluster figure SWEEP against y=elapsed_s`, or sweep with a target and by=time_to_target_s"
        raise UsageError("by=elapsed_s", f"{why}; {works}", "")
    config: Mapping[str, Any] = run.config
    stop = config["stop"]
    if ends := {key: stop[key] for key in ("time", "patience") if stop.get(key) is not None}:
        expected = "runs that stop by steps or epochs, or a sweep with a target and by='time_to_target_s'"
        rules = " and ".join(f"stop.{key}: {value}" for key, value in ends.items())
        raise UsageError("by", f"elapsed_s of runs with {rules}", expected)
    if "steps" not in stop:
        return float(stop["epochs"])  # An epoch has all samples, for any number of ranks.
    ranks = size_of(run.summary) - (config["algorithm"].get("server_trains") is False)
    size = config["workload"].get("batch_size", 1)
    return float(stop["steps"] * (sum(size.values()) if isinstance(size, Mapping) else ranks * size))


def draw_speedup(found: SpeedUps) -> go.Figure:
    """Draw the speed-up, with a dashed line for a proportional speed-up."""
    axis = {"title": {"text": "speed-up"}, "rangemode": "tozero"}
    if found.scale.is_logarithmic:  # On two logarithmic axes, proportion is a straight line.
        axis |= measure_axis("speed-up", [*known(found.lines), *(n for line in found.ideal or [] for n in line)])
    ideal = max(found.ideal, key=lambda line: line[-1]) if found.ideal is not None else None
    return _drawn(found, found.lines, axis, ideal)


def draw_efficiency(found: SpeedUps, x: str) -> go.Figure:
    """Draw the speed-up divided by the proportional one.

    Raise UsageError if the proportional speed-up is unknown.
    """
    if found.ideal is None:
        raise UsageError("x", x, "a key that changes the number of nodes, or one with numbers as values")
    shares = []
    for line, ideal in zip(found.lines, found.ideal, strict=True):
        parts = (np.divide(numbers, ideal).tolist() for numbers in (line.means, line.lows, line.highs))
        shares.append(SweptLine(line.label, *parts))
    figure = _drawn(found, shares, {"title": {"text": "efficiency"}, "rangemode": "tozero", "tickformat": ".0%"})
    return figure.add_hline(y=1, line=DASHED)


def _drawn(
    found: SpeedUps, lines: Sequence[SweptLine], yaxis: dict[str, Any], ideal: Sequence[float] | None = None
) -> go.Figure:
    figure = draw_lines(found.scale.places, lines, "%{x}: %{y:.3g}")
    figure.update_traces(showlegend=len(lines) > 1, selector={"mode": "lines+markers"})
    if ideal is not None:
        hover = "%{x}: in proportion %{y:.3g}<extra></extra>"
        x = list(found.scale.places)
        figure.add_scatter(x=x, y=ideal, name="in proportion", mode="lines", line=DASHED, hovertemplate=hover)
    what = "time to the target" if found.by == "time_to_target_s" else "samples in a second"
    against = f"{what.capitalize()}, against that at {found.scale.say(found.scale.places[0])}."
    text, more_px = titled(found.scale.title, [against, *found.cut])
    layout = named(figure, 280, more_px) | {"xaxis": {**found.scale.axis, "title": {"text": text}}, "yaxis": yaxis}
    return styled(figure, **layout, showlegend=True, hovermode="closest")
