"""The nodes' activity in a run, and the windows of time that its timeline shows first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

from simcluster.runs.folder import topology_of
from simcluster.runs.record import Span
from simcluster.runs.spans import Rest
from simcluster.runs.trace import Band, bands

if TYPE_CHECKING:
    from simcluster.runs.folder import RunFolder

MAX_BANDS = 60
"""Spells of faults drawn in one figure: a flap has thousands."""
FIRST_STEPS = 10


@dataclass(frozen=True)
class ActivitySpans:
    """A run's *spans* as (rank, span); *names* by rank, escaped for HTML; *elapsed_s* of the whole run.

    *rests*, by rank, sum up the other spans; *faults* are spells of faults.
    """

    names: Sequence[str]
    spans: Sequence[tuple[int, Span]]
    elapsed_s: float
    rests: Mapping[int, Rest] = field(default_factory=dict)
    faults: Sequence[Band] = ()


def activity_of(run: RunFolder) -> ActivitySpans:
    """Return the activity of *run*."""
    elapsed_s = run.summary["elapsed_s"]
    # The nodes of a large run on which nothing happened are not in its summary: the others have later ranks.
    of_rank = topology_of(run).workers if "resting" in run.summary else run.summary["nodes"]
    names = [escape(name) for name in of_rank]
    return ActivitySpans(names, run.spans, elapsed_s, run.rests, bands(run.summary.get("faults", ()), elapsed_s))


def windows_of(run: RunFolder) -> dict[str, tuple[float, float]]:
    """Return (start, length), in s, of the first, middle and last ten steps and of the whole run, by name."""
    elapsed_s = float(run.summary["elapsed_s"])
    width_s = min(end_of_first_steps(run, 0.0), elapsed_s)
    whole = {"whole run": (0.0, elapsed_s)}
    if width_s >= elapsed_s:
        return whole
    middle_s, last_s = (elapsed_s - width_s) / 2, elapsed_s - width_s
    return {"first steps": (0.0, width_s), "middle": (middle_s, width_s), "last steps": (last_s, width_s)} | whole


def end_of_first_steps(run: RunFolder, start_s: float) -> float:
    """Return when all nodes that record anything after *start_s* have made ten steps; the run's end if one has not."""
    rows, elapsed_s = run.rows, float(run.summary["elapsed_s"])
    later = rows.where(rows["time_s"] > start_s)
    if not len(later):
        return elapsed_s
    reached = later.where(later["step"] >= later["step"].min() + FIRST_STEPS - 1)
    firsts_s: dict[str, float] = {}
    for node, time_s in zip(reached["node"], reached["time_s"].tolist(), strict=True):
        firsts_s[node] = min(time_s, firsts_s.get(node, time_s))
    return elapsed_s if len(firsts_s) < len(set(later["node"])) else max(firsts_s.values())
