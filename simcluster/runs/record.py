"""The record of one node while it runs, and of a whole run. Every backend fills these in."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from simcluster.runs.spans import Adder, Rest, Span, SpanKind
from simcluster.transport import OWN_TAGS
from simcluster.unknown_number import UnknownNumber

if TYPE_CHECKING:
    from simcluster.checkpoints.keeper import Channel
    from simcluster.checkpoints.shard import Shard


class Copy(NamedTuple):
    """A node's weights when it had made *step*, at *time_s*: *values* of *size_bytes*, of the numpy type *kind*."""

    time_s: float
    step: int
    kind: str
    size_bytes: int
    values: bytes

    @property
    def vector(self) -> npt.NDArray[np.float64]:
        return np.frombuffer(self.values, dtype=self.kind).astype(np.float64)


__all__ = [
    "Metric",
    "NodeRecord",
    "Recorder",
    "Rest",
    "RunRecord",
    "Span",
    "SpanKind",
    "kept_spans",
    "regroups",
    "standing",
]


class Metric(NamedTuple):
    """One row of metrics.parquet: at *time_s* of the run, *node* at its *step* noted *name* = *value*."""

    time_s: float
    step: int
    node: str
    name: str
    value: float


OBSERVED = "observed_"
"""What the names of metrics begin with that only look: they are no part of a node's digest."""

KEPT_SPANS = 2**18
"""Spans that a run keeps one by one, all nodes together; what nodes do beyond their share is summed up."""


def kept_spans(size: int) -> int:
    """The share of one of *size* nodes."""
    return KEPT_SPANS // size


@dataclass
class NodeRecord:
    """Everything one node noted.

    *sent_to* maps a peer's rank to [messages, bytes]; bytes count header and body of the data lane. *control_bytes*
    counts everything else that this node sent (0 in the simulator). *rest* sums up the spans that came after *spans*
    were as many as are kept; None if none did. A node that never said its last words has no
    *finished_s* and no *weights_sha256*. *weights* is the content of a file with its final weights
    (simcluster.runs.weights); those of one node are enough for a run. *samples* says what became of its batches, as
    simcluster.workloads.ledger has it: one entry for each life that it had. *copies* are of its weights on the way, if
    the experiment asks for them: no part of the digest, as looking changes nothing. *order* is in which order things
    happened there, packed by simcluster.replays: none in the simulator. *regroups* has a row for each group of ranks
    that was formed anew with it in it, the last of *group_number*, in which it has *group_rank*;
    *is_through* says that its algorithm came to its end there. *first_step* and *last_step* are (step, time) of what
    its algorithm recorded first and last, also where no value is known. *incarnation* is which
    of its lives ended last: see Recorder. *ended_well* and *trained* are of that life: it came to the run's end, or to
    its time; and its weights have had a step, or were taken over from a node whose weights had. *holds_part*: only some
    of its weights are the model's, and rank 0 has them all. *numerics* names the kernels that computed there, as
    simcluster.process.kernels does: None where nothing was computed, or if the node never handed in its record.
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
    weights: bytes | None = field(default=None, repr=False)
    samples: list[dict[str, Any]] = field(default_factory=list, repr=False)
    copies: list[Copy] = field(default_factory=list, repr=False)
    order: list[bytes] = field(default_factory=list, repr=False)
    regroups: list[dict[str, Any]] = field(default_factory=list, repr=False)
    group_number: int = 0
    group_rank: int | None = None
    is_through: bool = False
    ended_well: bool = False
    trained: bool = False
    holds_part: bool = False
    first_step: tuple[int, float] | None = None
    last_step: tuple[int, float] | None = None
    began_s: float = 0.0
    incarnation: int = 0
    numerics: dict[str, str] | None = None

    @property
    def digest(self) -> str:
        """One hash over all that this node did, in order, whether it lived to the end or not."""
        sent = sorted(self.sent_to.items())
        # Hashed once, at the end: MessagePack keeps every bit of a float.
        metrics = [metric for metric in self.metrics if not metric.name.startswith(OBSERVED)]
        noted = [self.spans, metrics, sent, self.bytes_received, self.steps, self.finished_s]
        if self.rest is not None:
            noted.append(self.rest.digest)
        return hashlib.sha256(msgspec.msgpack.encode(noted)).hexdigest()

    @property
    def bytes_sent(self) -> int:
        return sum(count[1] for count in self.sent_to.values())

    @property
    def messages_sent(self) -> int:
        return sum(count[0] for count in self.sent_to.values())

    @property
    def compute_s(self) -> float:
        """Time the device worked: its pieces of work never overlap."""
        kept_s = sum(span.end_s - span.start_s for span in self.spans if span.kind == "compute")
        return kept_s + (self.rest.compute_s if self.rest is not None else 0.0)

    @property
    def wait_s(self) -> float:
        """Time the device stood idle before this node was done."""
        return max(0.0, (self.finished_s or 0.0) - self.began_s - self.compute_s)


class Recorder:
    """Fills a NodeRecord while a node runs. The transport calls it; *now* is the run's clock, 0 at its start.

    The first *keep* spans are kept one by one: see `kept_spans`. *on_metrics*, if given, is called after each `metrics`
    with (step, {name: value}), off the clock. *ledger*, if set, tells what became of this node's batches until now.
    *channel* and *restored* are a backend's: who takes checkpoints, and what this node goes on from. *incarnation* is 0
    in a first life that began with the run, and higher by one each time that the node comes late or comes back.
    *told_to_leave*: its algorithm is to end where its step does. *is_interrupted*: the run ends unjudged.
    *losses_are_planned*: no node is lost but by the plan, unlike on real nodes and in their replay. *settle* is a
    backend's whose work outlives the wait for it: it returns when the work in hand has ended, or False after the given
    seconds.
    """

    def __init__(self, rank: int, name: str, now: Callable[[], float], keep: int = KEPT_SPANS) -> None:
        self._record = NodeRecord(rank, name)
        self._keep = keep
        self._adder: Adder | None = None
        self.now = now
        self.on_metrics: Callable[[int, dict[str, float]], None] | None = None
        self.ledger: Callable[[], dict[str, Any]] | None = None
        self.channel: Channel | None = None
        self.restored: Shard | None = None
        self.told_to_leave = False
        self.is_interrupted = False
        self.losses_are_planned = True
        self.settle: Callable[[float], bool] = lambda patience_s: True

    @property
    def incarnation(self) -> int:
        return self._record.incarnation

    @incarnation.setter
    def incarnation(self, number: int) -> None:
        self._record.incarnation = number

    @property
    def record(self) -> NodeRecord:
        """Everything noted until now."""
        if self._adder is not None:
            self._record.rest = self._adder.total
        return self._record

    def span(self, kind: SpanKind, start_s: float, end_s: float, peer: int, tag: str, size_bytes: int) -> None:
        if kind == "recv" and tag.startswith(OWN_TAGS):
            start_s = end_s  # the library listened beside the algorithm: nobody waited
        if self._adder is not None:
            self._adder.add((kind, start_s, end_s, peer, tag, size_bytes))
            return
        self._record.spans.append(Span(kind, start_s, end_s, peer, tag, size_bytes))
        if len(self._record.spans) >= self._keep:
            self._adder = Adder()

    def sent(self, to: int, size_bytes: int, messages: int = 1) -> None:
        count = self._record.sent_to.get(to)
        if count is None:
            count = self._record.sent_to[to] = [0, 0]
        count[0] += messages
        count[1] += size_bytes

    def received(self, size_bytes: int) -> None:
        self._record.bytes_received += size_bytes

    def metrics(self, step: int, values: dict[str, float]) -> None:
        """Notes *values* now; raises TypeError for what is not a number."""
        time_s = self.now()
        for name, value in values.items():
            self.metric_at(time_s, step, name, value)
        self._record.steps = max(self._record.steps, step)
        self._record.trained = True
        self._record.first_step = self._record.first_step or (step, time_s)
        self._record.last_step = (step, time_s)
        if self.on_metrics is not None:
            self.on_metrics(step, values)

    def metric_at(self, time_s: float, step: int, name: str, value: float) -> None:
        """Notes one number for a moment that may have passed: an evaluation made off the clock.

        A number that is not known is no number to note.
        """
        if not isinstance(value, UnknownNumber):
            self._record.metrics.append(Metric(time_s, step, self._record.name, name, _number(name, value)))

    def end_algorithm(self) -> float:
        """Notes, and returns, that the algorithm ended now: what follows, as evaluating, is off the clock."""
        self.record.finished_s = self.now()
        return self.record.finished_s

    def finish(self, weights_sha256: str | None, finished_s: float | None = None) -> NodeRecord:
        """Closes the record at *finished_s*, or this moment."""
        record = self.record
        record.finished_s = self.now() if finished_s is None else finished_s
        record.weights_sha256 = weights_sha256
        return record


def _number(name: str, value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"a metric is one number, and {name!r} is {type(value).__name__} {value!r}") from None


@dataclass
class RunRecord:
    """A whole run as a backend hands it over: the nodes in rank order, and the error if it failed.

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
        """What of *elapsed_s* was this run's own."""
        return self.elapsed_s - self.began_s

    def begin_at(self, time_s: float) -> None:
        """The run began at *time_s*, where an earlier one was kept: moves all that was noted there."""
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
        """Whether ranks were lost, and a group that was formed anew came to the end without them."""
        return bool(regroups(self.nodes)) and self.standing.is_through

    @property
    def standing(self) -> NodeRecord:
        """Of the node that stands for the run."""
        return standing(self.nodes)

    @property
    def trace_sha256(self) -> str:
        """One hash over all that every node did."""
        return hashlib.sha256("".join(node.digest for node in self.nodes).encode()).hexdigest()


def standing(nodes: Sequence[NodeRecord]) -> NodeRecord:
    """Return the node of *nodes* that stands for the run: its weights and held-out loss are the run's.

    It is the lowest rank of those that `last`. Where groups were formed again, it is one of the last group that its
    first rank has begun. If none lasts, the run has failed: then it is the first rank of the last group, however that
    ended.
    """
    lasting = last(nodes)
    begun = {node.group_number for node in nodes if not node.group_rank}

    def place(node: NodeRecord) -> tuple[bool, int, int]:
        if node.group_rank is None or node.group_number not in begun:
            return node not in lasting, 0, node.rank
        return node not in lasting, -node.group_number, node.group_rank

    return min(nodes, key=place)


def last(nodes: Sequence[NodeRecord]) -> list[NodeRecord]:
    """Return those of *nodes* whose model may be the run's: they ended well, with all of it, and have trained.

    A node that was there from the beginning need not have trained: the time may be up before its first step. Until any
    node has taken a step, one that came back counts only if no other is left: the state that it took over is untrained.
    """
    well = [node for node in nodes if node.ended_well and not node.holds_part]
    if not any(node.steps for node in nodes):
        return [node for node in well if not node.incarnation] or well
    return [node for node in well if node.trained or not node.incarnation]


def regroups(nodes: Sequence[NodeRecord]) -> list[dict[str, Any]]:
    """A row for each group of ranks that was formed anew, in order, as its first node noted it: nobody was in all."""
    found = {row["group"]: row for node in reversed(nodes) for row in node.regroups}
    return [found[number] for number in sorted(found)]
