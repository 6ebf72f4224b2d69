"""Compare where a simulated run and a real run of the same experiment spend their time.

A node has four phases. `compute`, `send` and `recv` are the times with at least one such activity;
`wait` is the time during which its device was idle before the node finished. A send ends when the
last byte has left the node: in the simulator when the network has the byte, on sockets when the
operating system has it, which may be sooner. So `wait` should agree, and `send` and `recv` show the
origin of a difference.

The time of a link is the sum, over the messages that crossed it, of the time from the start of the
send to the end of the receive. On real machines both ends have different clocks, which differ by
the delay of the start signal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from simcluster.runs.calls import covered_s
from simcluster.runs.record import Span
from simcluster.runs.trace import KINDS

if TYPE_CHECKING:
    from simcluster.runs.folder import RunFolder
    from simcluster.topology import Topology

PHASES = (*KINDS, "wait")


class PredictedTime(NamedTuple):
    """A predicted time and the corresponding measured time."""

    predicted_s: float
    measured_s: float

    @property
    def ratio(self) -> float | None:
        """The ratio of measured to predicted time; None if the predicted time is 0."""
        return self.measured_s / self.predicted_s if self.predicted_s else None


class PredictedMemory(NamedTuple):
    """The memory of a node as predicted before a run, and the growth of its process in the run.

    Either is None if it is unknown.
    """

    predicted_peak_bytes: int | None
    grown_rss_bytes: int | None

    @property
    def ratio(self) -> float | None:
        """The ratio of the growth to the prediction; None if either is unknown."""
        if not self.predicted_peak_bytes or self.grown_rss_bytes is None:
            return None
        return self.grown_rss_bytes / self.predicted_peak_bytes


def memory(predicted: RunFolder, measured: RunFolder) -> dict[str, PredictedMemory]:
    """Return node -> memory for the nodes in both runs; empty if nothing is known of any node."""
    a, b = predicted.summary["nodes"], measured.summary["nodes"]
    found = {
        name: PredictedMemory(a[name].get("predicted_peak_bytes"), b[name].get("grown_rss_bytes"))
        for name in b
        if name in a
    }
    return found if any(each != (None, None) for each in found.values()) else {}


def phases(predicted: RunFolder, measured: RunFolder) -> dict[str, dict[str, PredictedTime]]:
    """Return node -> phase -> times for the nodes in both runs."""
    a, b = _phases_by_node(predicted), _phases_by_node(measured)
    return {node: {key: PredictedTime(a[node][key], b[node][key]) for key in PHASES} for node in a if node in b}


def links(predicted: RunFolder, measured: RunFolder, topology: Topology) -> dict[str, PredictedTime]:
    """Return link -> total seconds from send to receipt of the messages that crossed it.

    Links that no message crossed in either run are left out. Both runs are on *topology*.
    """
    a, b = _seconds_by_link(predicted, topology), _seconds_by_link(measured, topology)
    return {
        link.name: PredictedTime(a[link.name], b[link.name]) for link in topology.links if a[link.name] or b[link.name]
    }


def _phases_by_node(run: RunFolder) -> dict[str, dict[str, float]]:
    spans: dict[int, dict[str, list[Span]]] = defaultdict(lambda: defaultdict(list))
    for rank, span in run.spans:
        spans[rank][span.kind].append(span)
    found = {}
    for name, node in run.summary["nodes"].items():
        times = {kind: covered_s(spans[node["rank"]][kind]) for kind in KINDS} | {"wait": node["wait_s"]}
        # Spans are recorded to the nanosecond, so round off the errors of float sums.
        found[name] = {phase: round(time_s, 12) for phase, time_s in times.items()}
    return found


def _seconds_by_link(run: RunFolder, topology: Topology) -> dict[str, float]:
    seconds: dict[str, float] = defaultdict(float)
    found = transits(run.spans)
    late = lateness(found)
    for (source, to), taken in found.items():
        # Without the sizes of messages, those that choose links by size count on the first.
        for hop in topology.route(topology.workers[source], topology.workers[to]):
            seconds[hop.link.name] += sum(taken) + len(taken) * (late[to] - late[source])
    return seconds


def lateness(taken: Mapping[tuple[int, int], Sequence[float]]) -> dict[int, float]:
    """Return rank -> delay of its clock in seconds, estimated from *taken*; see `transits`.

    Real nodes count time from the start signal, which reaches some nodes later than others. The
    result has the smallest delays with which no message is received before it was sent. In the
    simulator they are 0.
    """
    late: dict[int, float] = defaultdict(float)
    for _ in range(len({rank for pair in taken for rank in pair})):
        for (source, to), times in taken.items():
            late[to] = max(late[to], late[source] - min(times, default=0.0))
    return late


def transits(spans: Iterable[tuple[int, Span]]) -> dict[tuple[int, int], list[float]]:
    """Return (from rank, to rank) -> seconds from send to receipt of each received message.

    Messages with the same ranks and tag arrive in the order in which they were sent.
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
