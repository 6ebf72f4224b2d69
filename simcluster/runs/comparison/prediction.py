"""Predicted against measured: where a simulated run and a real one of the same experiment spend their time.

Phases of a node: `compute`, `send` and `recv` are the times with at least one such activity; `wait` is the time until
the node finished in which its device was idle, as in every table. A send ends when the last byte has left the node: in
the simulator when the network has it, on sockets when the operating system does, which may be sooner. So `wait` should
agree, and `send` and `recv` show its origin.

The time of a link is from the start of a send to the end of its receive, summed over the messages that crossed it. On
real machines the two ends have two clocks, which differ by the delay of the start signal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from simcluster.runs.record import Span

if TYPE_CHECKING:
    from simcluster.runs.folder import RunFolder
    from simcluster.topology import Topology

PHASES = ("compute", "send", "recv", "wait")
Interval: TypeAlias = tuple[float, float]


class PredictedTime(NamedTuple):
    """The same time twice, in seconds."""

    predicted_s: float
    measured_s: float

    @property
    def ratio(self) -> float | None:
        """Measured over predicted; None where nothing was predicted."""
        return self.measured_s / self.predicted_s if self.predicted_s else None


class PredictedMemory(NamedTuple):
    """The memory that was counted for a node before a run, and how much its process grew; None if unknown."""

    predicted_peak_bytes: int | None
    grown_rss_bytes: int | None

    @property
    def ratio(self) -> float | None:
        """Growth over prediction; None if either is unknown."""
        if not self.predicted_peak_bytes or self.grown_rss_bytes is None:
            return None
        return self.grown_rss_bytes / self.predicted_peak_bytes


def memory(predicted: RunFolder, measured: RunFolder) -> dict[str, PredictedMemory]:
    """Node -> memory, of the nodes that both runs have; empty if neither number is known of any."""
    a, b = predicted.summary["nodes"], measured.summary["nodes"]
    found = {
        name: PredictedMemory(a[name].get("predicted_peak_bytes"), b[name].get("grown_rss_bytes"))
        for name in b
        if name in a
    }
    return found if any(each != (None, None) for each in found.values()) else {}


def phases(predicted: RunFolder, measured: RunFolder) -> dict[str, dict[str, PredictedTime]]:
    """Node -> phase -> times, of the nodes that both runs have."""
    a, b = _phases_by_node(predicted), _phases_by_node(measured)
    return {node: {key: PredictedTime(a[node][key], b[node][key]) for key in PHASES} for node in a if node in b}


def links(predicted: RunFolder, measured: RunFolder, topology: Topology) -> dict[str, PredictedTime]:
    """Link -> seconds from send to receipt of all messages that crossed it in either run; *topology* is of both."""
    a, b = _seconds_by_link(predicted, topology), _seconds_by_link(measured, topology)
    return {
        link.name: PredictedTime(a[link.name], b[link.name]) for link in topology.links if a[link.name] or b[link.name]
    }


def steps(predicted: RunFolder, measured: RunFolder) -> dict[int, PredictedTime]:
    """Step -> its time from one record to the next, the mean over nodes, for the steps that both runs have."""
    a, b = _seconds_by_step(predicted), _seconds_by_step(measured)
    return {step: PredictedTime(a[step], b[step]) for step in sorted(a) if step in b}


def _seconds_by_step(run: RunFolder) -> dict[int, float]:
    first = run.metrics.groupby(["node", "step"], sort=True)["time_s"].min()
    taken: dict[int, list[float]] = defaultdict(list)
    before: tuple[str, int, float] = ("", 0, 0.0)
    for (node, step), time_s in zip(first.index, first, strict=True):
        last_step, last_s = before[1:] if node == before[0] else (0, 0.0)
        if step > last_step:
            taken[step].append((time_s - last_s) / (step - last_step))
        before = (node, step, time_s)
    return {step: fmean(seconds) for step, seconds in taken.items()}


def _phases_by_node(run: RunFolder) -> dict[str, dict[str, float]]:
    spans: dict[int, dict[str, list[Interval]]] = defaultdict(lambda: defaultdict(list))
    for rank, span in run.spans:
        spans[rank][span.kind].append((span.start_s, span.end_s))
    found = {}
    for name, node in run.summary["nodes"].items():
        kinds = {kind: merged(spans[node["rank"]][kind]) for kind in ("compute", "send", "recv")}
        times = {kind: length(intervals) for kind, intervals in kinds.items()} | {"wait": node["wait_s"]}
        # Without the residue of rounding: spans are recorded to the nanosecond.
        found[name] = {phase: round(time_s, 12) for phase, time_s in times.items()}
    return found


def _seconds_by_link(run: RunFolder, topology: Topology) -> dict[str, float]:
    seconds: dict[str, float] = defaultdict(float)
    found = transits(run.spans)
    late = lateness(found)
    for (source, to), taken in found.items():
        for hop in topology.route(topology.workers[source], topology.workers[to]):
            seconds[hop.link.name] += sum(taken) + len(taken) * (late[to] - late[source])
    return seconds


def lateness(taken: Mapping[tuple[int, int], Sequence[float]]) -> dict[int, float]:
    """Return the least delay of each rank's clock against the others', given *taken*, the `transits` by those clocks.

    Real nodes count from the start signal, which reaches some later. A message is received after it was sent, and these
    are the smallest shifts that make it so for all messages; in the simulator they are 0.
    """
    late: dict[int, float] = defaultdict(float)
    for _ in range(len({rank for pair in taken for rank in pair})):
        for (source, to), times in taken.items():
            late[to] = max(late[to], late[source] - min(times, default=0.0))
    return late


def transits(spans: Iterable[tuple[int, Span]]) -> dict[tuple[int, int], list[float]]:
    """(from, to) -> seconds from send to receipt of each message that was received.

    Messages of one pair and tag arrive in the order sent.
    """
    sent: dict[tuple[int, int, str], list[float]] = defaultdict(list)
    received: dict[tuple[int, int, str], list[float]] = defaultdict(list)
    for rank, span in spans:
        if span.kind == "send":
            sent[rank, span.peer, span.tag].append(span.start_s)
        elif span.kind == "recv":
            received[span.peer, rank, span.tag].append(span.end_s)
    taken: dict[tuple[int, int], list[float]] = defaultdict(list)
    for (source, to, tag), ends_s in received.items():
        starts_s = sorted(sent[source, to, tag])
        taken[source, to] += [end_s - start_s for start_s, end_s in zip(starts_s, sorted(ends_s), strict=False)]
    return taken


def merged(intervals: Sequence[Interval]) -> list[Interval]:
    """*intervals* without overlaps, in order."""
    joined: list[Interval] = []
    for start_s, end_s in sorted(intervals):
        if joined and start_s <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end_s))
        else:
            joined.append((start_s, end_s))
    return joined


def length(intervals: Sequence[Interval]) -> float:
    """Return the total length of *intervals*, which do not overlap."""
    return sum(end_s - start_s for start_s, end_s in intervals)
