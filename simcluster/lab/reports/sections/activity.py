"""Find the nodes' activity in a run, and the windows of time that its timeline offers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from simcluster.runs.folder import RunFolder, topology_of
from simcluster.runs.record import Span
from simcluster.runs.spans import Rest
from simcluster.runs.trace import Band, bands

MAX_BANDS = 60
"""Limit on the fault intervals in one figure: a flapping link has thousands."""
FIRST_STEPS = 10


@dataclass(frozen=True)
class ActivitySpans:
    """The activity of a run: *spans* as (rank, span), and *names* by rank, escaped for HTML.

    *rests* maps a rank to the sum of its spans beyond the trace; *faults* are the intervals in
    which faults were active.
    """

    names: Sequence[str]
    spans: Sequence[tuple[int, Span]]
    elapsed_s: float
    rests: Mapping[int, Rest] = field(default_factory=dict)
    faults: Sequence[Band] = ()


def activity_of(run: RunFolder) -> ActivitySpans:
    """Return the spans and faults of *run*, and the names of all its nodes."""
    elapsed_s = run.summary["elapsed_s"]
    # The summary of a large run omits nodes without activity: take all names from the topology.
    of_rank = topology_of(run).workers if "resting" in run.summary else run.summary["nodes"]
    names = [escape(name) for name in of_rank]
    return ActivitySpans(names, run.spans, elapsed_s, run.rests, bands(run.summary.get("faults", ()), elapsed_s))


def windows_of(run: RunFolder) -> dict[str, tuple[float, float]]:
    """Return name -> (start, length) in s: the first, middle and last steps, and the whole run."""
    elapsed_s = float(run.summary["elapsed_s"])
    width_s = min(end_of_first_steps(run, 0.0), elapsed_s)
    whole = {"whole run": (0.0, elapsed_s)}
    if width_s >= elapsed_s:
        return whole
    middle_s, last_s = (elapsed_s - width_s) / 2, elapsed_s - width_s
    return {"first steps": (0.0, width_s), "middle": (middle_s, width_s), "last steps": (last_s, width_s)} | whole


def end_of_first_steps(run: RunFolder, start_s: float) -> float:
    """Return the time at which all nodes with records after *start_s* have made ten more steps.

    If a node makes fewer steps, return the time at which the run ends.
    """
    rows = run.rows
    elapsed_s = float(run.summary["elapsed_s"])
    later = rows.where(rows["time_s"] > start_s)
    if not len(later):
        return elapsed_s
    reached = later.where(later["step"] >= later["step"].min() + FIRST_STEPS - 1)
    firsts_s: dict[str, float] = {}
    for node, time_s in zip(reached["node"], reached["time_s"].tolist(), strict=True):
        firsts_s[node] = min(time_s, firsts_s.get(node, time_s))
    return elapsed_s if len(firsts_s) < len(set(later["node"])) else max(firsts_s.values())
