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

from simcluster.errors import RunError
from simcluster.paths.spool import Spool
from simcluster.runs.answer_rows import AnswerRow
from simcluster.runs.spans import Rest, Span, SpanKind

__all__ = ["Metric", "NodeRecord", "Rest", "RunRecord", "Span", "SpanKind", "kept_spans", "regroups", "standing"]


class Copy(NamedTuple):
    """A copy of a node's weights after *step*, at *time_s*, as bytes of the numpy type *kind*."""

    time_s: float
    step: int
    kind: str
    size_bytes: int
    values: bytes

    @property
    def vector(self) -> npt.NDArray[np.float64]:
        return np.frombuffer(self.values, dtype=self.kind).astype(np.float64)


class Metric(NamedTuple):
    """A row of metrics.parquet: *node* recorded *value* for *name*, at its *step* and *time_s*."""

    time_s: float
    step: int
    node: str
    name: str
    value: float


metric_of: Callable[[tuple[float, int, str, str, float]], Metric] = partial(tuple.__new__, Metric)
"""Make a metric from its values, in half the time of a call of Metric."""


class CodeDoubt(NamedTuple):
    """Something that looks wrong *at* "file:line (function)" of the user's code; see
    simcluster.runs.doubts.
    """

    kind: str
    what: str
    at: str
    times: int


OBSERVED = "observed_"
"""Prefix of metrics that only observe a node: they are not part of its digest."""

KEPT_SPANS = 2**18
"""Limit on the spans of all nodes together; those beyond a node's share are summed up."""


LISTED = 4096
"""Limit on the nodes that are listed one by one in the files of a run.

With more nodes, all idle ones share a row, and links without traffic are left out.
"""

MOST_NOTICED = 50
"""Limit on the suspicious places in user code that a node notes."""


def kept_spans(size: int) -> int:
    """Return the number of spans that each of *size* nodes keeps."""
    return KEPT_SPANS // size


@dataclass(slots=True)
class NodeRecord:
    """The record of one node.

    A node that joins late or rejoins begins a new life. These fields describe the last one:

    - *incarnation*: its number; see `Recorder`.
    - *ended_well*: whether the node reached the end of the run, or the time limit. *ended_early*:
      whether `stop.patience` ended it before its last planned step.
    - *trained*: whether its weights have made a step, here or on a node that they come from.
    - *trained_before*: whether an earlier life had trained. *takes_nothing*: whether no result of
      that life can have come into this one.

    Communication:

    - *sent_to*: peer's rank -> [messages, bytes]; the bytes are header and body of data messages.
    - *sent_over*: peer's rank -> the bytes over each of the topology's `routes` to it, if the size of
      a message decides; counted by the simulator only.
    - *control_bytes*: all other bytes that this node sent (0 in the simulator).

    Activity:

    - *rest*: the sum of the spans beyond the limit on *spans*, or None.
    - *order*: the order of events, packed by simcluster.runs.event_order; empty in the simulator.
    - *first_step*, *last_step*: (step, time) of the algorithm's first and last record, even if its
      values are unknown.
    - *regroups*: a row for each re-formed group of ranks with this node. The node is rank
      *group_rank* of its last group, *group_number*. *is_through*: whether the algorithm ended
      there.
    - *answers*: the tokens and ends of the answers that it gave.

    Results. A node that never handed in its record has no *finished_s* and no *weights_sha256*.

    - *weights*: the content of a file with the final weights (simcluster.runs.folder); those of one
      node suffice.
    - *holds_part*: the node has only a part of the model; rank 0 has all of it.
    - *samples*: the use of the batches of each life, as in simcluster.workloads.progress.ledger.
    - *copies*: copies of the weights during the run, if the experiment wants them. They are not
      part of the digest, since observing weights does not affect the run.
    - *noticed*: the places in user code that looked wrong. *changed*: whether the node's weights
      changed. See simcluster.runs.doubts.

    The process:

    - *numerics*: the kernels that computed, named by simcluster.process.kernels; None if nothing
      was computed, or the node never handed in its record.
    - *peak_rss_bytes*: the peak of the process's resident memory until the record was complete.
      *grown_rss_bytes*: its growth since just before the workload was made. Both are None in the
      simulator, where nodes share a process.
    - *predicted_peak_bytes*: the node's memory as computed before the run; None if unknown.
    """

    rank: int
    name: str
    metrics: list[Metric] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    rest: Rest | None = None
    sent_to: dict[int, list[int]] = field(default_factory=dict)
    sent_over: dict[int, list[int]] = field(default_factory=dict)
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
    ended_early: bool = False
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
    answers: list[AnswerRow] = field(default_factory=list)

    def notice(self, kind: str, what: str, at: str, count: int = 1) -> None:
        """Record *count* occurrences of *what*, which looks wrong, *at* a place in user code."""
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
        # MessagePack keeps every bit of a float.
        metrics = [metric for metric in self.metrics if not metric.name.startswith(OBSERVED)]
        noted = [self.spans, metrics, sent, self.bytes_received, self.steps, self.finished_s]
        if self.rest is not None:
            noted.append(self.rest.digest)
        if self.answers:
            noted.append(self.answers)
        return hashlib.sha256(msgspec.msgpack.encode(noted)).hexdigest()

    @property
    def began_again(self) -> bool:
        """Whether the last life started from scratch although an earlier life had trained."""
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
        """Seconds during which the device worked; its pieces of work never overlap."""
        kept_s = sum(span.end_s - span.start_s for span in self.spans if span.kind == "compute")
        return kept_s + (self.rest.compute_s if self.rest is not None else 0.0)

    @property
    def wait_s(self) -> float:
        """Seconds during which the device was idle before this node finished."""
        return max(0.0, (self.finished_s or 0.0) - self.began_s - self.compute_s)


@dataclass
class RunRecord:
    """A whole run, as a backend returns it: the nodes in rank order, and the error if it failed.

    *elapsed_s* is virtual time in the simulator, and measured on real nodes; *wall_s* is always
    measured. A resumed run began at *began_s* of the original run.
    """

    nodes: list[NodeRecord]
    elapsed_s: float
    wall_s: float
    error: RunError | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    began_s: float = 0.0

    @property
    def lasted_s(self) -> float:
        """*elapsed_s* without the part before the run was resumed."""
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
        """Whether a re-formed group finished the run after ranks were lost."""
        return bool(regroups(self.nodes)) and self.standing.is_through

    @property
    def standing(self) -> NodeRecord:
        """The record of the node that represents the run; see the function `standing`."""
        return standing(self.nodes)

    @property
    def trace_sha256(self) -> str:
        """One hash over all activity of every node."""
        idle: dict[tuple[int, float | None], str] = {}
        found = hashlib.sha256()
        for node in self.nodes:
            # Most nodes of a large cluster are idle. Their digests depend only on this key, so hash
            # each once.
            if node.is_idle and node.rest is None:
                key = (node.steps, node.finished_s)
                if key not in idle:
                    idle[key] = node.digest
                found.update(idle[key].encode())
            else:
                found.update(node.digest.encode())
        return found.hexdigest()


def standing(nodes: Sequence[NodeRecord]) -> NodeRecord:
    """Return the node of *nodes* that represents the run: its weights and held-out loss are the
    run's.

    It is the lowest rank of the nodes in `last`. If groups were re-formed, it is the lowest rank of
    the last group that the group's first rank has begun. If `last` is empty, the run has failed: it
    is then the first rank of the last group, however that group ended.
    """
    lasting = {node.rank for node in last(nodes)}
    begun = {node.group_number for node in nodes if not node.group_rank}

    def place(node: NodeRecord) -> tuple[bool, int, int]:
        if node.group_rank is None or node.group_number not in begun:
            return node.rank not in lasting, 0, node.rank
        return node.rank not in lasting, -node.group_number, node.group_rank

    return min(nodes, key=place)


def last(nodes: Sequence[NodeRecord]) -> list[NodeRecord]:
    """Return the nodes that may have the run's model: trained, complete, and well ended.

    - A node that was present from the start need not have trained: the time may be up before its
      first step.
    - If no node has made a step, a node that rejoined counts only if there is no other: its weights
      are untrained.
    - If a node started from scratch after it had trained, its results may have been the only ones.
      So the list is empty, unless a node that never left ended well.
    """
    well = [node for node in nodes if node.ended_well and not node.holds_part]
    if not any(node.steps for node in nodes):
        return [node for node in well if not node.incarnation] or well
    found = [node for node in well if (node.trained or not node.incarnation) and not node.began_again]
    return found if any(not node.incarnation for node in found) or not any(node.began_again for node in well) else []


def regroups(nodes: Sequence[NodeRecord]) -> list[dict[str, Any]]:
    """Return a row for each re-formed group of ranks, in order.

    A row is from the first node of its group: there may be no node that was in all groups.
    """
    found = {row["group"]: row for node in reversed(nodes) for row in node.regroups}
    return [found[number] for number in sorted(found)]


def hand_in(record: NodeRecord) -> Iterator[bytes]:
    """Yield the parts of *record* that are too large for a message: its weights, then its copies."""
    if record.weights is not None:
        yield from record.weights.pieces()
    for copy in record.copies:
        yield copy.values


def told(copies: Sequence[Copy]) -> list[Copy]:
    """Return *copies* without their values, which `hand_in` yields separately."""
    return [copy._replace(values=b"") for copy in copies]


def put_back(record: NodeRecord, content: Spool) -> NodeRecord:
    """Return *record* with weights and copies from *content*, the parts that `hand_in` yielded.

    If any part is missing, the record has neither.
    """
    sizes = [copy.size_bytes for copy in record.copies]
    at = content.size_bytes - sum(sizes)
    if at < 0:
        return replace(record, weights=None, copies=[])
    copies = []
    weights = content.first(at) if at else None
    for copy, size_bytes in zip(record.copies, sizes, strict=True):
        copies.append(copy._replace(values=content.read(at, at + size_bytes)))
        at += size_bytes
    return replace(record, weights=weights, copies=copies)
