"""The launcher's view of a node, over all its incarnations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from simcluster.errors import ABSENT
from simcluster.job import ClusterJob, Remote
from simcluster.paths.spool import Spool
from simcluster.runs.answer_rows import AnswerRow
from simcluster.runs.record import Metric, NodeRecord, Span, put_back
from simcluster.watching.board import NodeTelemetry
from simcluster.watching.telling import NodeRows, RowContents, with_rows
from simcluster_backends.common.failure import LEFT
from simcluster_backends.common.log_line import MACHINE
from simcluster_backends.common.waiting import wait_in_words
from simcluster_backends.common.watchdog import NodeProgress
from simcluster_backends.sockets.net.connection import Connection
from simcluster_backends.sockets.wire import messages

ROWS = ("metrics", "spans", "answers", "order")
"""The lists of a NodeRecord that arrive before the record itself."""


@dataclass
class NodeHandle:
    """One node, from its start to its end. It has ended when *outcome* or *gone* is set.

    A node that rejoins is another *incarnation*. *is_coming* is true while a node is joining late
    or rejoining. *before* has the records of earlier incarnations. *metrics*, *spans*,
    *evaluations* and *answers* cover all incarnations.
    """

    rank: int
    name: str
    by_hand: bool = False
    remote: Remote | None = None
    pid: int | None = None
    exited: bool = True
    exit_code: int | None = None  # None again once it has been logged
    connection: Connection | None = None
    listening: tuple[str, int] | None = None
    connected: bool = False
    held: list[str] = field(default_factory=list)
    heard_s: float = 0.0
    status: messages.NodeStatus | None = None
    metrics: list[Metric] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    evaluations: list[Metric] = field(default_factory=list)
    answers: list[AnswerRow] = field(default_factory=list)
    order: list[bytes] = field(default_factory=list)
    pieces: Spool = field(default_factory=Spool)
    outcome: messages.NodeOutcome | None = None
    gone: str | None = None
    is_killed: bool = False  # whether the launcher has killed it
    incarnation: int = 0
    is_coming: bool = False
    before: list[NodeRecord] = field(default_factory=list)
    noted: RowContents = field(default_factory=RowContents)

    @property
    def label(self) -> str:
        return f"rank {self.rank} ({self.name})"

    @property
    def ended(self) -> bool:
        return self.outcome is not None or self.gone is not None

    @property
    def is_there(self) -> bool:
        """Whether peers can connect to the node: it runs, or has ended well but not yet exited."""
        well = self.outcome is None or self.outcome.failure is None
        return self.connection is not None and self.gone is None and well

    @property
    def has_left(self) -> bool:
        """Whether the node has left as ordered."""
        return self.outcome is not None and self.outcome.failure is not None and self.outcome.failure.kind == LEFT

    def come(self) -> None:
        self.incarnation += 1
        self.is_coming = True

    def restart(self) -> None:
        """Keep the record of the previous incarnation, if there was one, and begin the next."""
        if self.gone != ABSENT:
            self.before.append(replace(self._life(), metrics=[], spans=[], answers=[], order=[]))
        self.pid = None
        self.listening = None
        self.connected = False
        self.status = None
        self.order = []
        self.pieces = Spool()
        self.outcome = None
        self.is_killed = False
        self.exit_code = None
        self.come()

    def tell(self, message: messages.FromLauncher) -> None:
        """Send *message* to the node, if it is connected."""
        if self.connection is not None:
            self.connection.put(messages.control_frame(message))

    def hear(self, message: messages.FromNode) -> None:
        if isinstance(message, messages.NodeStatus):
            self.status = message
        elif isinstance(message, messages.RecordRows):
            self.metrics += message.metrics
            self.spans += message.spans
            self.evaluations += message.evaluations
            self.answers += message.answers
        elif isinstance(message, messages.OrderPiece):
            self.order.append(message.content)
        elif isinstance(message, messages.WeightsPiece):
            self.pieces.append(message.content)
        elif isinstance(message, messages.ListenAddress):
            self.listening = (message.host, message.port)
        elif isinstance(message, messages.ConnectionReport):
            self.connected, self.held = True, message.held
        elif isinstance(message, messages.NodeOutcome):
            self.outcome = message

    @property
    def is_preparing(self) -> bool:
        """Whether the node, not yet connected, is preparing its part: its event loop is blocked."""
        return not self.connected and self.status is not None and self.status.stalled_s > 0

    @property
    def steps(self) -> int:
        return self.status.steps if self.status is not None else 0

    @property
    def progress(self) -> NodeProgress:
        said = self.status
        return (
            NodeProgress(said.moved, said.done, said.computing, said.waits, said.ended)
            if said is not None
            else NodeProgress()
        )

    @property
    def waits_in_words(self) -> str:
        """The last reported waits, for the report of a run that hangs."""
        if self.status is not None and self.status.stalled_s:
            return f"{self.label} is at {self.status.place}, for {self.status.stalled_s:.0f} s without an await"
        if self.status is None:
            return wait_in_words(self.label, [], [], [])
        work = ["a piece of its work"] if self.status.computing else []
        return wait_in_words(self.label, [*work, *self.status.waits], self.status.places, self.status.unread)

    @property
    def sent_to(self) -> dict[int, list[int]]:
        """The last reported traffic: rank of a peer -> [messages, bytes]."""
        said = self.outcome.record if self.outcome is not None else self.status
        return said.sent_to if said is not None else {}

    @property
    def rows(self) -> NodeRows:
        return NodeRows(self.name, self.metrics, self.evaluations, self.gone is not None, self.answers)

    def telemetry(self, now_s: float) -> NodeTelemetry:
        """Return the node's state at *now_s* of the loop's clock, for the coordinator.

        It reads only the metrics and spans that are new since the last call.
        """
        status, state = self.status, "expected"
        if self.gone is not None:
            state = "expected" if self.gone == ABSENT else "lost"
        elif self.outcome is not None or (status is not None and status.ended):
            state = "ended"
        elif self.connection is not None:
            state = "running" if status is not None and (status.steps or status.moved) else "joined"
        self.noted.read(self.metrics, self.spans, self.evaluations)
        told = NodeTelemetry(
            name=self.name,
            rank=self.rank,
            state=state,
            bytes_received=status.bytes_received if status is not None else 0,
            step=self.steps,
            silent_s=None if self.connection is None else max(0.0, now_s - self.heard_s),
            computing=bool(status and status.computing),
            waits=status.waits if status is not None else [],
            stalled_s=status.stalled_s if status is not None else 0.0,
            reason=self.gone or "",
        )
        machine = {key: status.machine.get(key) for key in MACHINE} if status is not None else {}
        return with_rows(told.model_copy(update=machine), self.noted, self.sent_to)

    def record(self) -> NodeRecord:
        """Return the node's record, over all incarnations."""
        return together([*self.before, self._life()])

    def _life(self) -> NodeRecord:
        """Return the record of the current incarnation, as far as the node has reported it."""
        rows: dict[str, Any] = {name: getattr(self, name) for name in ROWS}
        if self.outcome is not None:
            return put_back(replace(self.outcome.record, **rows), self.pieces)
        record = NodeRecord(self.rank, self.name, incarnation=self.incarnation, **rows)
        if self.status is not None:
            record.sent_to, record.steps = self.status.sent_to, self.status.steps
            record.bytes_received = self.status.bytes_received
            record.samples = [self.status.samples] if self.status.samples is not None else []
        return record


def together(lives: Sequence[NodeRecord]) -> NodeRecord:
    """Combine *lives*, one node's records by incarnation, into the last of them, and return it.

    It then has the traffic and samples of all incarnations.
    """
    *earlier, record = lives
    for life in earlier:
        for peer, (number, size_bytes) in life.sent_to.items():
            count = record.sent_to.setdefault(peer, [0, 0])
            record.sent_to[peer] = [count[0] + number, count[1] + size_bytes]
        record.bytes_received += life.bytes_received
        record.control_bytes += life.control_bytes
        record.steps = max(record.steps, life.steps)
        record.trained_before = record.trained_before or life.trained or life.steps > 0
    record.samples = [sample for life in lives for sample in life.samples]
    return record


def members_of(job: ClusterJob) -> list[NodeHandle]:
    """Return one member per node of *job*, by rank."""
    alone: list[None] = [None] * len(job.names)
    places = zip(job.names, job.addresses or alone, job.remotes or alone, strict=True)
    return [
        NodeHandle(rank, name, by_hand=address is not None, remote=remote)
        for rank, (name, address, remote) in enumerate(places)
    ]
