"""Plotly figures of compared runs: `compare(sim, real).plot.predicted_measured()`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from html import escape
from statistics import fmean

import plotly.graph_objects as go

from simcluster.errors import UsageError
from simcluster.lab.reports.figure_style import LINES, Figures, log_axis, styled
from simcluster.lab.reports.scales import time_scale
from simcluster.runs import words
from simcluster.runs.comparison.compare import RunPair
from simcluster.runs.comparison.prediction import PredictedTime
from simcluster.runs.folder import RunFolder

CLOSE = 0.1
"""Half the width of the band around equal times, as a share of the time."""

MAX_STEPS = 200
"""Limit on the steps drawn as points: if there are more, every k-th step is drawn."""

GREY = "rgba(128,136,146,0.8)"


KINDS = {
    "step": ("a step", LINES[5], "circle", 5),
    "compute": ("a node computing", LINES[0], "circle", 9),
    "wait": ("a node waiting", LINES[3], "diamond", 9),
    "link": ("a link, send to receipt", LINES[4], "square", 9),
    "elapsed": ("the whole run", LINES[1], "star", 15),
}
"""Kind of point -> its name, colour, symbol and size."""


class ComparePlots(Figures):
    """The figures of compared runs."""

    def __init__(self, pairs: Sequence[RunPair]) -> None:
        self._pairs = list(pairs)

    def predicted_measured(self) -> go.Figure:
        """Measured against predicted times, with a line for equal times and a band of 10 % around
        it.

        There is a point for the whole run, each node's computing and waiting, each link, and each
        step (the mean over nodes). Times of 0 are left out. Raise UsageError unless a simulated
        run is compared with a real one.
        """
        pairs = [pair for pair in self._pairs if pair.predicted_and_measured]
        if not pairs:
            found = words.listing([pair.a.summary["backend"] for pair in self._pairs[:1]])
            raise UsageError("runs", f"only runs on {found}", "a run on sim and one on sockets")
        points = [point for pair in pairs for point in _points(pair) if min(point[2]) > 0]
        times_s = [time_s for _, _, times in points for time_s in times]
        unit_s, unit = time_scale(max(times_s, default=0.0))
        in_unit = [time_s / unit_s for time_s in times_s] or [1.0]
        figure = go.Figure()
        _add_diagonal(figure, min(in_unit) / 1.5, max(in_unit) * 1.5)
        for kind in KINDS:
            own = [(label, times) for of, label, times in points if of == kind]
            if own:
                figure.add_trace(_markers(own, kind, unit_s))
        return styled(
            figure,
            height=460,
            hovermode="closest",
            xaxis={"title": {"text": f"predicted ({unit})"}, **log_axis(in_unit)},
            yaxis={"title": {"text": f"measured ({unit})"}, **log_axis(in_unit)},
        )


def _points(pair: RunPair) -> Iterator[tuple[str, str, PredictedTime]]:
    """Yield (kind, subject, predicted and measured time) of each point."""
    both = pair.predicted_and_measured
    assert both is not None, "asked before"
    yield "elapsed", "the whole run", PredictedTime(both[0].summary["elapsed_s"], both[1].summary["elapsed_s"])
    for node, of_phases in pair.phases.items():
        for phase in ("compute", "wait"):
            yield phase, f"{node}, {phase}", of_phases[phase]
    for link, times in pair.transits.items():
        yield "link", link, times
    of_steps = steps(*both)
    stride = max(1, -(-len(of_steps) // MAX_STEPS))
    for step, times in list(of_steps.items())[::stride]:
        yield "step", f"step {step}", times


def _markers(own: Sequence[tuple[str, PredictedTime]], kind: str, unit_s: float) -> go.Scatter:
    name, colour, symbol, size = KINDS[kind]
    texts = []
    for label, times in own:
        both = f"predicted {words.seconds(times.predicted_s)}, measured {words.seconds(times.measured_s)}"
        texts.append(f"{escape(label)}<br>{both} (x{times.ratio or 0.0:.3g})")
    return go.Scatter(
        x=[times.predicted_s / unit_s for _, times in own],
        y=[times.measured_s / unit_s for _, times in own],
        mode="markers",
        name=name,
        marker={"color": colour, "symbol": symbol, "size": size},
        opacity=0.85,
        hovertext=texts,
        hoverinfo="text",
    )


def _add_diagonal(figure: go.Figure, low: float, high: float) -> None:
    figure.add_scatter(
        x=[low, high, high, low],
        y=[low * (1 + CLOSE), high * (1 + CLOSE), high * (1 - CLOSE), low * (1 - CLOSE)],
        fill="toself",
        fillcolor="rgba(128,136,146,0.16)",
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
        name=f"within {words.share(CLOSE)}",
    )
    line = {"color": GREY, "width": 1.5, "dash": "dash"}
    figure.add_scatter(x=[low, high], y=[low, high], mode="lines", name="equal", hoverinfo="skip", line=line)


def steps(predicted: RunFolder, measured: RunFolder) -> dict[int, PredictedTime]:
    """Return step -> its predicted and measured time, as means over nodes.

    Only steps of both runs are included.
    """
    a, b = _seconds_by_step(predicted), _seconds_by_step(measured)
    return {step: PredictedTime(a[step], b[step]) for step in sorted(a) if step in b}


def _seconds_by_step(run: RunFolder) -> dict[int, float]:
    """Return step -> the seconds per step since a node's previous record, as the mean over nodes."""
    first = run.metrics.groupby(["node", "step"], sort=True)["time_s"].min()
    taken: dict[int, list[float]] = defaultdict(list)
    before: tuple[str, int, float] = ("", 0, 0.0)
    for (node, step), time_s in zip(first.index, first, strict=True):
        last_step, last_s = before[1:] if node == before[0] else (0, 0.0)
        if step > last_step:
            taken[step].append((time_s - last_s) / (step - last_step))
        before = (node, step, time_s)
    return {step: fmean(seconds) for step, seconds in taken.items()}
