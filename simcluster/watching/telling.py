"""Turn the records that backends keep of their nodes into telemetry; each call reads only new ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from simcluster.runs.summary import ACCURACY, LOSS
from simcluster.watching.board import Line as MapLine
from simcluster.watching.board import LinkTelemetry, Map, NodeTelemetry, RunInfo, Spot, Telemetry

if TYPE_CHECKING:
    from simcluster.runs.record import Metric, Span
    from simcluster.topology import Topology

WAITS_TOLD = 3

MOST_ON_MAP = 64
"""With more nodes a map does not help, and its layout takes long."""

MOST_LINKS = 4096

SentTo = Mapping[int, Sequence[int]]
"""Rank of a peer -> [messages, bytes]."""


class Watcher(Protocol):
    """An observer of a run. A backend calls it anywhere; it cannot affect the run."""

    def begin(self, run: RunInfo) -> None: ...

    def look(self, telemetry: Callable[[], Telemetry]) -> None:
        """Offer news: call *telemetry* if it is wanted now."""

    def end(self, telemetry: Telemetry | None, error: str) -> None: ...


class Watchers:
    """Several watchers as one."""

    def __init__(self, *watchers: Watcher) -> None:
        self._watchers = watchers

    def begin(self, run: RunInfo) -> None:
        for watcher in self._watchers:
            watcher.begin(run)

    def look(self, telemetry: Callable[[], Telemetry]) -> None:
        for watcher in self._watchers:
            watcher.look(telemetry)

    def end(self, telemetry: Telemetry | None, error: str) -> None:
        for watcher in self._watchers:
            watcher.end(telemetry, error)


class NodeRows(NamedTuple):
    """All rows that node *name* has recorded so far: lists that grow while it runs."""

    name: str
    metrics: Sequence[Metric]
    evaluations: Sequence[Metric]
    is_lost: bool


class Follower(Protocol):
    """An observer of a run's rows. A backend calls it like a `Watcher`; *offset_s* is when its clock starts."""

    offset_s: float

    def begin(self, run: RunInfo) -> None: ...

    def look(self, rows: Callable[[], Sequence[NodeRows]]) -> None:
        """Offer news: call *rows* if they are wanted now."""


@dataclass
class RowContents:
    """The contents of one node's rows, each read once. *values* holds the latest value of every metric.

    Metrics of held-out samples belong to the weights of step *eval_step*.
    """

    values: dict[str, float] = field(default_factory=dict)
    step: int = 0
    eval_step: int | None = None
    compute_s: float = 0.0
    _metrics: int = 0
    _spans: int = 0
    _evaluations: int = 0

    def read(self, metrics: Sequence[Metric], spans: Sequence[Span], evaluations: Sequence[Metric] = ()) -> None:
        """Read the new rows."""
        counts = len(metrics), len(spans)
        for metric in metrics[self._metrics : counts[0]]:
            self.values[metric.name] = metric.value
            self.step = max(self.step, metric.step)
        self.compute_s += sum(s.end_s - s.start_s for s in spans[self._spans : counts[1]] if s.kind == "compute")
        self._metrics, self._spans = counts
        count = len(evaluations)
        for metric in evaluations[self._evaluations : count]:
            self.values[metric.name] = metric.value
            self.eval_step = metric.step
        self._evaluations = count


def with_rows(node: NodeTelemetry, noted: RowContents, sent_to: SentTo) -> NodeTelemetry:
    """Return *node* with its rows added; its *step* and *compute_s* are what is known beyond the rows."""
    return node.model_copy(
        update={
            "step": max(node.step, noted.step),
            "loss": noted.values.get("loss"),
            "staleness": noted.values.get("staleness"),
            "compute_s": noted.compute_s + node.compute_s,
            "waits": node.waits[:WAITS_TOLD],
            "messages_sent": sum(count[0] for count in sent_to.values()),
            "bytes_sent": sum(count[1] for count in sent_to.values()),
            "metrics": {**noted.values},
            "eval_loss": noted.values.get(LOSS) if noted.eval_step is not None else None,
            "eval_accuracy": noted.values.get(ACCURACY) if noted.eval_step is not None else None,
            "eval_step": noted.eval_step,
        }
    )


def link_telemetry(names: Sequence[str], topology: Topology | None, sent: Mapping[int, SentTo]) -> list[LinkTelemetry]:
    """Return the traffic *sent* by each rank, on the links between *names*; per pair if no topology is known.

    With more than MOST_LINKS, those without traffic are left out.
    """
    few = topology is None or len(topology.links) <= MOST_LINKS
    links = topology.links if topology is not None and few else ()
    carried = {link.name: [0, 0] for link in links}
    capacities = {link.name: link.bandwidth_Bps for link in links}
    for rank, sent_to in sent.items():
        for peer, (_, size_bytes) in sent_to.items():
            if topology is None:
                low, high = sorted((rank, peer))
                carried.setdefault(f"{names[low]}-{names[high]}", [0, 0])[rank > peer] += size_bytes
                continue
            for hop in topology.route(names[rank], names[peer]):
                link = hop.link
                carried.setdefault(link.name, [0, 0])[not hop.forward] += size_bytes
                capacities[link.name] = link.bandwidth_Bps
    return [
        LinkTelemetry(name=name, bytes_forward=there, bytes_backward=back, capacity_Bps=capacities.get(name))
        for name, (there, back) in carried.items()
        if there or back or few
    ]


def run_info(
    names: Sequence[str],
    seed: int,
    about: Mapping[str, Any],
    backend: str,
    rendezvous: str = "",
    attempt: int = 1,
    *,
    drawn: Topology | None = None,
) -> RunInfo:
    """Describe a run to a watcher. *about* holds its name, algorithm, topology and steps, as far as known.

    The map shows the topology *drawn*, if given and small enough.
    """
    known = {"name": "a run", "seed": seed, "map": map_of(drawn) if drawn is not None else None, **about}
    return RunInfo(nodes=list(names), rendezvous=rendezvous, backend=backend, attempt=attempt, **known)


def map_of(topology: Topology) -> Map | None:
    """Return the positions of its nodes on a page; None if there are too many."""
    from simcluster.topology.draw.layout import place

    if len(topology.nodes) > MOST_ON_MAP:
        return None
    points = place(list(topology.nodes), [(link.a, link.b) for link in topology.links])
    spots = [Spot(name=n.name, kind=n.kind, x=points[n.name][0], y=points[n.name][1]) for n in topology.nodes.values()]
    return Map(spots=spots, lines=[MapLine(name=link.name, a=link.a, b=link.b) for link in topology.links])
