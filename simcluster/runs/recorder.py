"""The recorder that fills a node's record while the node runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simcluster.process.unawaited import first_step_made
from simcluster.runs.answer_rows import AnswerRow
from simcluster.runs.record import KEPT_SPANS, Metric, NodeRecord, metric_of
from simcluster.runs.spans import Adder, SpanKind, span_of
from simcluster.transport import OWN_TAGS
from simcluster.unknown_number import UnknownNumber

if TYPE_CHECKING:
    from simcluster.checkpoints.keeper import CheckpointChannel
    from simcluster.checkpoints.shard import Shard
    from simcluster.payload import Message


@dataclass(frozen=True)
class TrainingPace:
    """The pace of a node's training, for views of the run.

    *steps* is the planned number, and *samples* returns the number of samples drawn so far; a
    sample of text has *tokens* tokens. If *in_step*, every rank makes all steps; otherwise only
    ranks that draw samples do.
    """

    steps: int
    samples: Callable[[], int]
    tokens: int | None
    in_step: bool


class Recorder:
    """The recorder of a running node: it fills a NodeRecord. The transport calls it.

    *now* is the run's clock, 0 at its start. The first *keep* spans are kept, the others summed up;
    see `kept_spans`.

    - *incarnation*: 0 in a life that began with the run; it grows by one each time the node joins
      late or rejoins.
    - *latest*: name -> last value of every metric.
    - *evaluations*: the held-out losses so far, which the record gets at the end of the run.
    - *told_to_leave*: whether the algorithm should end after its current step.
    - *is_interrupted*: whether the run makes no more evaluations.

    The experiment may set:

    - *on_metrics*: called after each `metrics` with (step, {name: value}), off the clock.
    - *ledger*: returns the use of this node's batches so far. *pace*: the pace of its training.

    A backend may set:

    - *on_step*: called with each new step. *on_answer*: called for each token. *on_end*: called
      when the algorithm ends.
    - *channel*: takes checkpoints. *restored*: the state to resume from.
    - *losses_are_planned*: nodes are lost only as the fault plan says, unlike on real nodes and in
      their replay.
    - *settle*: waits for work that a cancelled wait has left running; returns False if it takes
      longer than the given seconds.
    - *alongside*: runs pieces of work one after another in a thread other than the algorithm's.
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
        self.on_answer: Callable[[], None] | None = None
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
            start_s = end_s  # the library received it in the background: the algorithm did not wait
        if self._adder is not None:
            self._adder.add((kind, start_s, end_s, peer, tag, size_bytes))
            return
        spans = self._record.spans
        spans.append(span_of((kind, start_s, end_s, peer, tag, size_bytes)))
        if len(spans) >= self._keep:
            self._adder = Adder()

    def sum_up(self) -> None:
        """Keep no further span, only their sum: the record of a service must not grow."""
        self._adder = self._adder or Adder()

    def sent(self, to: int, size_bytes: int, messages: int = 1) -> None:
        count = self._record.sent_to.get(to)
        if count is None:
            count = self._record.sent_to[to] = [0, 0]
        count[0] += messages
        count[1] += size_bytes

    def sent_over(self, to: int, number: int, size_bytes: int) -> None:
        """Note that *size_bytes*, also counted by `sent`, took the route *number* in order of size."""
        counts = self._record.sent_over.setdefault(to, [])
        counts += [0] * (number + 1 - len(counts))
        counts[number] += size_bytes

    def received(self, size_bytes: int) -> None:
        self._record.bytes_received += size_bytes

    def recv(self, start_s: float, message: Message) -> None:
        """Record that the algorithm, which waited since *start_s*, received *message* now."""
        self._record.bytes_received += message.size_bytes
        self.span("recv", start_s, self.now(), message.source, message.tag, message.size_bytes)

    def metrics(self, step: int, values: dict[str, float]) -> None:
        """Record *values* at the current time. Raise TypeError for a value that is not a number."""
        time_s = self.now()
        record = self._record
        self._record_metrics(time_s, step, values)
        self.reached(step)
        if not record.trained:
            first_step_made()
            record.trained = True
        record.last_step = (step, time_s)
        record.first_step = record.first_step or record.last_step
        if self.on_metrics is not None:
            self.on_metrics(step, values)

    def reached(self, step: int) -> None:
        """Note that *step* has ended, whether or not it has metrics."""
        if step > self._record.steps:
            self._record.steps = step
            if self.on_step is not None:
                self.on_step(step)

    def metric_at(self, time_s: float, step: int, name: str, value: float) -> None:
        """Record one number at *time_s*, which may be in the past; leave out an unknown number."""
        self._record_metrics(time_s, step, {name: value})

    def answer(self, row: AnswerRow) -> None:
        """Record a token, or the end of an answer."""
        self._record.answers.append(row)
        if self.on_answer is not None:
            self.on_answer()

    def evaluated(self, time_s: float, step: int, values: dict[str, float]) -> None:
        """Note the results of an evaluation of the weights of *step*; leave out unknown numbers."""
        self.evaluations += self._known(time_s, step, values)

    def _record_metrics(self, time_s: float, step: int, values: dict[str, float]) -> None:
        for metric in self._known(time_s, step, values):
            self._record.metrics.append(metric)
            self.latest[metric.name] = metric.value

    def _known(self, time_s: float, step: int, values: dict[str, float]) -> Iterator[Metric]:
        """Yield a metric for each of *values* that is not an unknown number."""
        node = self._record.name
        for name, value in values.items():
            if not isinstance(value, UnknownNumber):
                yield metric_of((time_s, step, node, name, _number(name, value)))

    def end_algorithm(self) -> float:
        """Record and return the time at which the algorithm ended; later work is off the clock."""
        finished_s = self.record.finished_s = self.now()
        self.on_end()
        return finished_s

    def finish(self, weights_sha256: str | None, finished_s: float | None = None) -> NodeRecord:
        """Complete the record and return it; the node finished at *finished_s*, by default now."""
        record = self.record
        record.finished_s = self.now() if finished_s is None else finished_s
        record.weights_sha256 = weights_sha256
        return record


def _number(name: str, value: float) -> float:
    """Return *value* as a float. Raise TypeError, naming the metric *name*, if it is not a number."""
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"a metric is one number, and {name!r} is {type(value).__name__} {value!r}") from None
