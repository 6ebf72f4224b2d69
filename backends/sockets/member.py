"""What the launcher knows of one node, and which of all the things that went wrong is the run's error.

This file knows reports and their order. It must not know processes, loops or when patience is lost: everything in it is
plain.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, field, replace

from backends.sockets.connection import Connection
from backends.sockets.control import (
    Connected,
    Failure,
    FromLauncher,
    FromNode,
    Listening,
    Ordered,
    Outcome,
    Piece,
    Rows,
    Status,
    control_frame,
)
from simcluster.errors import NodeFailed, PeerLost, RunError
from simcluster.experiment.job import ClusterJob, Remote
from simcluster.results.copies import put_back
from simcluster.results.record import Metric, NodeRecord, Span


@dataclass
class Member:
    """One node, from its start to its end. It has ended when *outcome* or *gone* is set."""

    rank: int
    name: str
    by_hand: bool = False
    remote: Remote | None = None
    pid: int | None = None
    exited: bool = True
    connection: Connection | None = None
    listening: tuple[str, int] | None = None
    connected: bool = False
    heard_s: float = 0.0
    status: Status | None = None
    metrics: list[Metric] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    order: list[bytes] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)
    outcome: Outcome | None = None
    gone: str | None = None

    @property
    def label(self) -> str:
        return f"rank {self.rank} ({self.name})"

    @property
    def ended(self) -> bool:
        return self.outcome is not None or self.gone is not None

    def tell(self, message: FromLauncher) -> None:
        """Sends it *message*, if it is there."""
        if self.connection is not None:
            self.connection.put(control_frame(message))

    def hear(self, message: FromNode) -> None:
        """Notes what it said."""
        if isinstance(message, Status):
            self.status = message
        elif isinstance(message, Rows):
            self.metrics += message.metrics
            self.spans += message.spans
        elif isinstance(message, Ordered):
            self.order.append(message.content)
        elif isinstance(message, Piece):
            self.pieces.append(message.content)
        elif isinstance(message, Listening):
            self.listening = (message.host, message.port)
        elif isinstance(message, Connected):
            self.connected = True
        elif isinstance(message, Outcome):
            self.outcome = message

    @property
    def steps(self) -> int:
        """How far it is, as it said last."""
        return self.status.steps if self.status is not None else 0

    @property
    def algorithm_ended(self) -> bool:
        """Whether it has nothing left to do but to evaluate and to hand in."""
        return self.status is not None and self.status.ended

    @property
    def waits(self) -> bool:
        """Whether, as it said last, it waits and does not compute."""
        return self.status is not None and bool(self.status.waits) and not self.status.computing

    @property
    def waits_in_words(self) -> str:
        """What it does, as it said last, for the report of a run that does not end."""
        if self.status is not None and self.status.stalled_s:
            return f"{self.label} is at {self.status.place}, for {self.status.stalled_s:.0f} s without an await"
        words = ", ".join(self.status.waits) if self.status is not None else ""
        if self.status is not None and self.status.computing:
            words = f"a piece of its work{', ' if words else ''}{words}"
        return f"{self.label} waits for {words or 'something outside the transport'}"

    def record(self) -> NodeRecord:
        """What is known of its part: all of it, or what it had said before it died."""
        if self.outcome is not None:
            record = replace(self.outcome.record, metrics=self.metrics, spans=self.spans, order=self.order)
            return put_back(record, b"".join(self.pieces))
        record = NodeRecord(self.rank, self.name, self.metrics, self.spans, order=self.order)
        if self.status is not None:
            record.sent_to, record.steps = self.status.sent_to, self.status.steps
            record.bytes_received = self.status.bytes_received
            record.samples = [self.status.samples] if self.status.samples is not None else []
        return record


def members_of(job: ClusterJob) -> list[Member]:
    """One for each node of *job*, by rank."""
    alone: list[None] = [None] * len(job.names)
    places = zip(job.names, job.addresses or alone, job.remotes or alone, strict=True)
    return [
        Member(rank, name, by_hand=address is not None, remote=remote)
        for rank, (name, address, remote) in enumerate(places)
    ]


@dataclass
class Verdict:
    """Collects what goes wrong, in the order in which the launcher learns of it; `error` says what the run
    died of.

    Survivors of a dead node fail with PeerLost, and survivors of those too. Their reports may come before the
    death itself is known here, so the error is found at the end: a death that nobody planned or a failure of
    its own, the first of them; else the planned death or cut that a survivor could not do without; else the first
    report there is. *planned* has the ranks that the fault plan kills, *cut_off* says of two ranks that it has cut them
    off from each other: whoever cannot go on for that is no failure, but lost, if others end well.
    """

    names: list[str]
    planned: Container[int] = ()
    cut_off: Callable[[int, int], bool] = lambda a, b: False
    own: Exception | None = None  # the launcher's: a start that failed, a limit that was reached
    has_failed: bool = False  # some node has, and nobody planned it
    _anybody_well: bool = False
    _deaths: dict[int, str] = field(default_factory=dict)
    _causes: list[RunError] = field(default_factory=list)
    _reports: list[PeerLost] = field(default_factory=list)
    _cut: dict[int, PeerLost] = field(default_factory=dict)  # by the rank that reported it

    def died(self, rank: int, reason: str) -> None:
        self._deaths.setdefault(rank, reason)
        if rank not in self.planned:
            self._causes.append(PeerLost(rank, self.names[rank], reason))

    def ended_well(self) -> None:
        """Some node has."""
        self._anybody_well = True

    def failed(self, rank: int, failure: Failure) -> None:
        lost = PeerLost(failure.rank, self._name(failure.rank), failure.text) if failure.kind == "peer_lost" else None
        if lost is not None and self.cut_off(rank, lost.rank):
            self._cut[rank] = lost
            return
        self.has_failed = True
        if lost is not None:
            self._reports.append(lost)
        elif failure.kind == "start":
            self._causes.append(RunError(f"rank {rank} ({self.names[rank]}) could not start: {failure.text}"))
        elif failure.kind == "failed":
            self._causes.append(NodeFailed(rank, self.names[rank], failure.details or failure.text))

    @property
    def error(self) -> Exception | None:
        if self.own is not None:
            return self.own
        if self._causes:
            return self._causes[0]
        if self._cut and (self._reports or not self._anybody_well):
            return self._cut[min(self._cut)]
        for report in self._reports:
            if report.rank in self._deaths:
                return PeerLost(report.rank, report.name, self._deaths[report.rank])
        return self._reports[0] if self._reports else None

    @property
    def lost(self) -> dict[str, str]:
        """Who did not take part to the end, by name, and why."""
        cut = {} if self.error is not None else {rank: f"{lost}" for rank, lost in self._cut.items()}
        return {self.names[rank]: reason for rank, reason in {**self._deaths, **cut}.items()}

    def _name(self, rank: int) -> str:
        """An algorithm may raise a PeerLost of its own, about anybody."""
        return self.names[rank] if 0 <= rank < len(self.names) else ""
