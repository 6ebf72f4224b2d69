"""The records of a node and of a whole run, which every backend fills in."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from simcluster.paths.spool import Spool
from simcluster.runs.spans import Rest, Span, SpanKind

__all__ = ["Metric", "NodeRecord", "Rest", "RunRecord", "Span", "SpanKind", "kept_spans", "regroups", "standing"]


class Copy(NamedTuple):
    """A node's weights after *step*, at *time_s*: *values* of *size_bytes*, of the numpy type *kind*."""

    time_s: float
    step: int
    kind: str
    size_bytes: int
    values: bytes

    @property
    def vector(self) -> npt.NDArray[np.float64]:
        return np.frombuffer(self.values, dtype=self.kind).astype(np.float64)


class Metric(NamedTuple):
    """One row of metrics.parquet: at *time_s* of the run, *node* recorded *name* = *value* at its *step*."""

    time_s: float
    step: int
    node: str
    name: str
    value: float


metric_of: Callable[[tuple[float, int, str, str, float]], Metric] = partial(tuple.__new__, Metric)
"""Makes a metric of its values, in half the time that Metric takes."""


class CodeDoubt(NamedTuple):
    """Something that looks wrong *at* "file:line (function)" of the user's code: see simcluster.runs.doubts."""

    kind: str
    what: str
    at: str
    times: int


OBSERVED = "observed_"
"""Prefix of metrics that only observe: they are not part of a node's digest."""

KEPT_SPANS = 2**18
"""Spans that a run keeps one by one, all nodes together; those beyond a node's share are summed up."""


LISTED = 4096
"""In the files of a run of more nodes, those on which nothing has happened have one row together, and links without
traffic none.
"""

MOST_NOTICED = 50
"""Places of a node that looked wrong: a run of one algorithm has few lines."""


def kept_spans(size: int) -> int:
    """Return the share of one of *size* nodes."""
    return KEPT_SPANS // size


@dataclass(slots=True)
class NodeRecord:
    """The record of one node.

    *sent_to* maps a peer's rank to [messages, bytes]; bytes count header and body of the data lane. *control_bytes*
    counts everything else that this node sent (0 in the simulator). *rest* sums up the spans beyond the limit on
    *spans*, or is None. A node that never handed in its record has no *finished_s* and no *weights_sha256*. *weights*
    is the content of a file with its final weights (simcluster.runs.folder); those of one node suffice for a run.
    *samples* has an entry for each of its lives: the use of its batches as in simcluster.workloads.progress.ledger.
    *copies* are of its weights during the run, if the experiment asks for them; they are not part of the digest, as
    observing changes nothing. *order* is the order of events, packed by simcluster.lab.replays; empty in the simulator.
    *regroups* has a row for each re-formed group of ranks with this node; the last is *group_number*, where it has
    *group_rank*, and *is_through* says that its algorithm ended there. *first_step* and *last_step* are (step, time) of
    its algorithm's first and last record, even without known values. *incarnation* is the life that ended last: see
    Recorder. *ended_well* and *trained* describe that life: it reached the end of the run or its time limit; its
    weights have had a step, or were taken over from a node with such weights. *trained_before*: an earlier life had
    trained; *takes_nothing*: nothing of that can have come into this one. *holds_part*: only some of its weights are
    the model's, and rank 0 has them all. *numerics* names the kernels that computed there, as
    simcluster.process.kernels does; None if nothing was computed, or the node never handed in its record.
    *peak_rss_bytes* is the peak of its process's resident memory until its record was complete, *grown_rss_bytes* how
    much that is above the process just before the workload was made; None in the simulator, where nodes share one.
    *noticed* has what looked wrong while it ran, *changed* whether its weights changed (simcluster.runs.doubts).
    *predicted_peak_bytes* is the memory that was counted for it before the run; None if it is unknown.
    """

    rank: int
    name: str
    metrics: list[Metric] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    rest: Rest | None = None
    sent_to: dict[int, list[int]] = field(default_factory=dict)
    bytes_received: int = 0
    control_bytes: int = 0
    steps: int = 0
    finished_s: float | None = None
    weights_sha256: str | None = None
    weights: Spool | None = field(default=None, repr=False)
    samples: list[dict[str, Any]] = field(default_factory=list, repr=False)
    copies: list[Copy] = field(default_factory=list, repr=False)
    order: list[bytes] = field(default_factory=list, repr=False)
    regroups: list[dict[str, Any]] = field(default_factory=list, repr=False)
    group_number: int = 0
    group_rank: int | None = None
    is_through: bool = False
    ended_well: bool = False
    trained: bool = False
    trained_before: bool = False
    takes_nothing: bool = False
    holds_part: bool = False
    first_step: tuple[int, float] | None = None
    last_step: tuple[int, float] | None = None
    began_s: float = 0.0
    incarnation: int = 0
    numerics: dict[str, str] | None = None
    peak_rss_bytes: int | None = None
    grown_rss_bytes: int | None = None
    predicted_peak_bytes: int | None = None
    noticed: list[CodeDoubt] = field(default_factory=list)
    changed: bool | None = None

    def notice(self, kind: str, what: str, at: str, count: int = 1) -> None:
        """Note *count* times that *what* looked wrong *at* a place in the user's code."""
        for index, row in enumerate(self.noticed):
            if row[:3] == (kind, what, at):
                self.noticed[index] = row._replace(times=row.times + count)
                return
        if len(self.noticed) < MOST_NOTICED:
            self.noticed.append(CodeDoubt(kind, what, at, count))

    @property
    def digest(self) -> str:
        """One hash over all activity of this node, in order, whether or not it survived."""
        sent = sorted(self.sent_to.items())
        # Hashed once at the end; MessagePack keeps every bit of a float.
        metrics = [metric for metric in self.metrics if not metric.name.startswith(OBSERVED)]
        noted = [self.spans, metrics, sent, self.bytes_received, self.steps, self.finished_s]
        if self.rest is not None:
            noted.append(self.rest.digest)
        return hashlib.sha256(msgspec.msgpack.encode(noted)).hexdigest()

    @property
    def began_again(self) -> bool:
        """Whether its last life trained without anything of what an earlier one had trained."""
        return self.trained_before and self.takes_nothing

    @property
    def is_idle(self) -> bool:
        """Whether nothing has happened on this node."""
        return not (self.spans or self.metrics or self.sent_to or self.bytes_received)

    @property
    def bytes_sent(self) -> int:
        return sum(count[1] for count in self.sent_to.values())

    @property
    def messages_sent(self) -> int:
        return sum(count[0] for count in self.sent_to.values())

    @property
    def compute_s(self) -> float:
        """Time the device worked; its pieces of work never overlap."""
        kept_s = sum(span.end_s - span.start_s for span in self.spans if span.kind == "compute")
        return kept_s + (self.rest.compute_s if self.rest is not None else 0.0)

    @property
    def wait_s(self) -> float:
        """Time the device was idle before this node finished."""
        return max(0.0, (self.finished_s or 0.0) - self.began_s - self.compute_s)


@dataclass
class RunRecord:
    """A whole run, as a backend returns it: the nodes in rank order, and the error if it failed.

    *elapsed_s* is virtual in the simulator and measured on sockets; *wall_s* is measured on both. A resumed run began
    at *began_s*.
    """

    nodes: list[NodeRecord]
    elapsed_s: float
    wall_s: float
    error: Exception | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    began_s: float = 0.0

    @property
    def lasted_s(self) -> float:
        """*elapsed_s* without the time before a resumed run."""
        return self.elapsed_s - self.began_s

    def begin_at(self, time_s: float) -> None:
        """Shift everything recorded by *time_s*, the time of the checkpoint that the run resumed from."""
        self.began_s = time_s
        self.elapsed_s += time_s
        for node in self.nodes:
            node.began_s = time_s
            node.metrics = [metric._replace(time_s=metric.time_s + time_s) for metric in node.metrics]
            node.spans = [
                span._replace(start_s=span.start_s + time_s, end_s=span.end_s + time_s) for span in node.spans
            ]
            node.rest = node.rest and node.rest.later(time_s)
            node.regroups = [row | {"time_s": row["time_s"] + time_s} for row in node.regroups]
            node.finished_s = None if node.finished_s is None else node.finished_s + time_s

    @property
    def went_on(self) -> bool:
        """Whether ranks were lost, and a re-formed group finished without them."""
        return bool(regroups(self.nodes)) and self.standing.is_through

    @property
    def standing(self) -> NodeRecord:
        """The record of the node that stands for the run."""
        return standing(self.nodes)

    @property
    def trace_sha256(self) -> str:
        """One hash over all activity of every node."""
        idle: dict[tuple[int, float | None], str] = {}
        found = hashlib.sha256()
        for node in self.nodes:
            if node.is_idle and node.rest is None:  # most of a large cluster: the digest depends on nothing else
                key = (node.steps, node.finished_s)
                if key not in idle:
                    idle[key] = node.digest
                found.update(idle[key].encode())
            else:
                found.update(node.digest.encode())
        return found.hexdigest()


def standing(nodes: Sequence[NodeRecord]) -> NodeRecord:
    """Return the node of *nodes* that stands for the run: its weights and held-out loss are the run's.

    It is the lowest rank of those that `last`. If groups were re-formed, it is in the last group that its first rank
    has begun. If none lasts, the run has failed, and it is the first rank of the last group, however that ended.
    """
    lasting = {node.rank for node in last(nodes)}
    begun = {node.group_number for node in nodes if not node.group_rank}

    def place(node: NodeRecord) -> tuple[bool, int, int]:
        if node.group_rank is None or node.group_number not in begun:
            return node.rank not in lasting, 0, node.rank
        return node.rank not in lasting, -node.group_number, node.group_rank

    return min(nodes, key=place)


def last(nodes: Sequence[NodeRecord]) -> list[NodeRecord]:
    """Return those of *nodes* that may have the run's model: they ended well, with all of it, and have trained.

    A node present from the start need not have trained: the time may be up before its first step. Until any node has
    taken a step, a node that rejoined counts only if no other is left: the state that it took over is untrained.
    None does if a node began again without what its earlier life had trained, unless one that never left ended well.
    """
    well = [node for node in nodes if node.ended_well and not node.holds_part]
    if not any(node.steps for node in nodes):
        return [node for node in well if not node.incarnation] or well
    found = [node for node in well if (node.trained or not node.incarnation) and not node.began_again]
    return found if any(not node.incarnation for node in found) or not any(node.began_again for node in well) else []


def regroups(nodes: Sequence[NodeRecord]) -> list[dict[str, Any]]:
    """Return a row for each re-formed group of ranks, in order, as its first node recorded it: no node is in all."""
    found = {row["group"]: row for node in reversed(nodes) for row in node.regroups}
    return [found[number] for number in sorted(found)]


def hand_in(record: NodeRecord) -> Iterator[bytes]:
    """Yield the parts of *record* that are too large for a message: its weights, then its copies."""
    if record.weights is not None:
        yield from record.weights.pieces()
    for copy in record.copies:
        yield copy.values


def told(copies: Sequence[Copy]) -> list[Copy]:
    """Return *copies* without their values, which `hand_in` yields."""
    return [copy._replace(values=b"") for copy in copies]


def put_back(record: NodeRecord, content: Spool) -> NodeRecord:
    """Return *record* with the weights and copies handed in, in order; without them if any are missing."""
    sizes = [copy.size_bytes for copy in record.copies]
    at = content.size_bytes - sum(sizes)
    if at < 0:
        return replace(record, weights=None, copies=[])
    copies, weights = [], content.first(at) if at else None
    for copy, size_bytes in zip(record.copies, sizes, strict=True):
        copies.append(copy._replace(values=content.read(at, at + size_bytes)))
        at += size_bytes
    return replace(record, weights=weights, copies=copies)
