"""The recorder that fills a node's record while the node runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simcluster.process.unawaited import first_step_made
from simcluster.runs.record import KEPT_SPANS, Metric, NodeRecord, metric_of
from simcluster.runs.spans import Adder, SpanKind, span_of
from simcluster.transport import OWN_TAGS
from simcluster.unknown_number import UnknownNumber

if TYPE_CHECKING:
    from simcluster.checkpoints.keeper import CheckpointChannel
    from simcluster.checkpoints.shard import Shard


@dataclass(frozen=True)
class TrainingPace:
    """A node's training: its planned *steps*, the *samples* drawn so far, each of *tokens* tokens if it has any.

    *in_step*: every rank makes all of these steps; else only a rank that draws samples does.
    """

    steps: int
    samples: Callable[[], int]
    tokens: int | None
    in_step: bool


class Recorder:
    """Fills a NodeRecord while a node runs. The transport calls it; *now* is the run's clock, 0 at its start.

    The first *keep* spans are kept one by one: see `kept_spans`. *on_metrics*, if given, is called after each `metrics`
    with (step, {name: value}), off the clock; *on_step*, set by a backend, with each new step. *ledger*, if set,
    returns the use of this node's batches so far, and *pace* says what it trains on. *latest* has the last value of
    every metric. *evaluations* are the held-out losses found so far, which the record gets at the end of the run.
    *channel* and *restored* are set by a backend: the taker of checkpoints, and the state to resume from. *incarnation*
    is 0 in a first life that began with the run, and grows by one each time the node joins late or rejoins.
    *told_to_leave*: its algorithm is to end at the end of its step. *is_interrupted*: the run evaluates no more.
    *losses_are_planned*: nodes are lost only by the plan, unlike on real nodes and in their replay. *settle* is set by
    a backend if work can outlive the wait for it: it returns when the work in hand has ended, or False after the given
    seconds. *on_end* is called when the algorithm has ended.
    *alongside*, if a backend sets it, runs pieces of work in order, in another thread than the algorithm's.
    """

    def __init__(self, rank: int, name: str, now: Callable[[], float], keep: int = KEPT_SPANS) -> None:
        self._record = NodeRecord(rank, name)
        self._keep = keep
        self._adder: Adder | None = None
        self.now = now
        self.on_metrics: Callable[[int, dict[str, float]], None] | None = None
        self.on_step: Callable[[int], None] | None = None
        self.ledger: Callable[[], dict[str, Any]] | None = None
        self.pace: TrainingPace | None = None
        self.latest: dict[str, float] = {}
        self.channel: CheckpointChannel | None = None
        self.restored: Shard | None = None
        self.told_to_leave = False
        self.is_interrupted = False
        self.losses_are_planned = True
        self.settle: Callable[[float], bool] = lambda patience_s: True
        self.on_end: Callable[[], None] = lambda: None
        self.evaluations: list[Metric] = []
        self.alongside: Callable[[Callable[[], None]], Future[None]] | None = None

    @property
    def incarnation(self) -> int:
        return self._record.incarnation

    @incarnation.setter
    def incarnation(self, number: int) -> None:
        self._record.incarnation = number

    @property
    def step(self) -> int:
        return self._record.steps

    @property
    def finished_s(self) -> float | None:
        return self._record.finished_s

    @property
    def record(self) -> NodeRecord:
        """Everything recorded so far."""
        if self._adder is not None:
            self._record.rest = self._adder.total
        return self._record

    def span(self, kind: SpanKind, start_s: float, end_s: float, peer: int, tag: str, size_bytes: int) -> None:
        if kind == "recv" and tag.startswith(OWN_TAGS):
            start_s = end_s  # the library listened alongside the algorithm, which did not wait
        if self._adder is not None:
            self._adder.add((kind, start_s, end_s, peer, tag, size_bytes))
            return
        spans = self._record.spans
        spans.append(span_of((kind, start_s, end_s, peer, tag, size_bytes)))
        if len(spans) >= self._keep:
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
        """Record *values* now; raise TypeError for a value that is not a number."""
        time_s, record = self.now(), self._record
        self._record_metrics(time_s, step, values)
        if step > record.steps:
            record.steps = step
            if self.on_step is not None:
                self.on_step(step)
        if not record.trained:
            first_step_made()
            record.trained = True
        record.last_step = (step, time_s)
        record.first_step = record.first_step or record.last_step
        if self.on_metrics is not None:
            self.on_metrics(step, values)

    def metric_at(self, time_s: float, step: int, name: str, value: float) -> None:
        """Record one number at a time that may have passed. An unknown number is not recorded."""
        self._record_metrics(time_s, step, {name: value})

    def evaluated(self, time_s: float, step: int, values: dict[str, float]) -> None:
        """Note an evaluation of the weights of *step*, made off the clock; leave out unknown numbers."""
        self.evaluations += self._known(time_s, step, values)

    def _record_metrics(self, time_s: float, step: int, values: dict[str, float]) -> None:
        for metric in self._known(time_s, step, values):
            self._record.metrics.append(metric)
            self.latest[metric.name] = metric.value

    def _known(self, time_s: float, step: int, values: dict[str, float]) -> Iterator[Metric]:
        """Yield the metrics of *values*, without unknown numbers."""
        node = self._record.name
        for name, value in values.items():
            if not isinstance(value, UnknownNumber):
                yield metric_of((time_s, step, node, name, _number(name, value)))

    def end_algorithm(self) -> float:
        """Record and return the end of the algorithm; the rest, such as evaluation, is off the clock."""
        finished_s = self.record.finished_s = self.now()
        self.on_end()
        return finished_s

    def finish(self, weights_sha256: str | None, finished_s: float | None = None) -> NodeRecord:
        """Close the record at *finished_s*, or now."""
        record = self.record
        record.finished_s = self.now() if finished_s is None else finished_s
        record.weights_sha256 = weights_sha256
        return record


def _number(name: str, value: float) -> float:
    """Return *value* of the metric *name* as a float."""
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"a metric is one number, and {name!r} is {type(value).__name__} {value!r}") from None
