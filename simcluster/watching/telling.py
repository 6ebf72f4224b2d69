"""Turn the records of a backend's nodes into telemetry; each call reads only the new rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from simcluster.runs.summary import ACCURACY, LOSS
from simcluster.watching.board import Line as MapLine
from simcluster.watching.board import LinkTelemetry, Map, NodeTelemetry, RunInfo, Spot, Telemetry

if TYPE_CHECKING:
    from simcluster.runs.answer_rows import AnswerRow
    from simcluster.runs.record import Metric, Span
    from simcluster.topology import Topology

WAITS_TOLD = 3

MOST_ON_MAP = 64
"""With more nodes, a map is not drawn: it would not help, and its layout takes long."""

MOST_LINKS = 4096

SentTo = Mapping[int, Sequence[int]]
"""Rank of a peer -> [messages, bytes]."""


class Watcher(Protocol):
    """An observer of a run, which cannot affect the run. A backend may call it at any point."""

    def begin(self, run: RunInfo) -> None: ...

    def look(self, telemetry: Callable[[], Telemetry]) -> None:
        """Take the current state by calling *telemetry*, which costs time, if it is due."""

    def end(self, telemetry: Telemetry | None, error: str) -> None: ...


class Watchers:
    """A watcher that passes all calls on to several *watchers*."""

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
    """The rows that node *name* has recorded so far, in lists that grow while it runs."""

    name: str
    metrics: Sequence[Metric]
    evaluations: Sequence[Metric]
    is_lost: bool
    answers: Sequence[AnswerRow] = ()


class Follower(Protocol):
    """An observer of a run's rows, called like a `Watcher`.

    *offset_s* is the time of the checkpoint that the run resumed from, 0 for a new run; *config* is
    the run's resolved experiment.
    """

    offset_s: float
    config: Mapping[str, Any]

    def begin(self, run: RunInfo) -> None: ...

    def look(self, rows: Callable[[], Sequence[NodeRows]]) -> None:
        """Take the current rows by calling *rows*, which costs time, if they are due."""


@dataclass
class RowContents:
    """The contents of one node's rows; `read` reads each row once.

    *values* has the latest value of every metric. Those of held-out samples belong to the weights
    of *eval_step*.
    """

    values: dict[str, float] = field(default_factory=dict)
    step: int = 0
    eval_step: int | None = None
    compute_s: float = 0.0
    _metrics: int = 0
    _spans: int = 0
    _evaluations: int = 0

    def read(self, metrics: Sequence[Metric], spans: Sequence[Span], evaluations: Sequence[Metric] = ()) -> None:
        """Add the rows that are new since the last call."""
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
    """Return *node* with the contents *noted* of its rows, and its traffic *sent_to*.

    The *step* and *compute_s* that *node* already has are not in the rows yet.
    """
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


def link_telemetry(
    names: Sequence[str],
    topology: Topology | None,
    sent: Mapping[int, SentTo],
    over: Mapping[int, Mapping[int, Sequence[int]]] = MappingProxyType({}),
) -> list[LinkTelemetry]:
    """Return the traffic *sent* by the ranks, per link; without a topology, per pair of nodes.

    *names* are the names of the ranks, and *over* has their `NodeRecord.sent_over`. With more than
    MOST_LINKS links, those without traffic are left out.
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
            by_route = over.get(rank, {}).get(peer, ())
            for hop, part_bytes in topology.carried(names[rank], names[peer], size_bytes, by_route):
                link = hop.link
                carried.setdefault(link.name, [0, 0])[not hop.forward] += part_bytes
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
    """Return the description of a run for watchers.

    *about* has the name, algorithm, topology and steps, as far as known. The map shows the topology
    *drawn*, if it is given and small enough.
    """
    known = {"name": "a run", "seed": seed, "map": map_of(drawn) if drawn is not None else None, **about}
    return RunInfo(nodes=list(names), rendezvous=rendezvous, backend=backend, attempt=attempt, **known)


def map_of(topology: Topology) -> Map | None:
    """Return *topology* with positions for a page; None if it has more than MOST_ON_MAP nodes."""
    from simcluster.topology.draw.layout import place

    if len(topology.nodes) > MOST_ON_MAP:
        return None
    points = place(list(topology.nodes), [(link.a, link.b) for link in topology.links])
    spots = [Spot(name=n.name, kind=n.kind, x=points[n.name][0], y=points[n.name][1]) for n in topology.nodes.values()]
    return Map(spots=spots, lines=[MapLine(name=link.name, a=link.a, b=link.b) for link in topology.links])
