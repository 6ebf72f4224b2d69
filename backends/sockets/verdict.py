"""Which of all the things that went wrong is a run's error, and who was lost on the way.

This file knows reports and their order. It must not know processes, loops or when patience is lost: everything in it is
plain.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, field

from backends.sockets.control import LEFT, Failure
from simcluster.errors import ENDED, NobodyLeft, NodeFailed, PeerLost, RunError
from simcluster.experiment.fault_kinds import ABSENT, NEVER_JOINED, too_late


@dataclass
class Verdict:
    """Collects what goes wrong, in the order in which the launcher learns of it; `error` says what the run
    died of.

    Survivors of a dead node fail with PeerLost, and survivors of those too. Their reports may come before the
    death itself is known here, so the error is found at the end: a death that nobody planned or a failure of
    its own, the first of them; else the planned death or cut that a survivor could not do without; else the first
    report there is. *planned* has the ranks that the fault plan kills, *cut_off* says of two ranks that it has cut them
    off from each other: whoever cannot go on for that is no failure, but lost, if others end well. Nor is whoever left
    as it was told to, or came back and found that the others had ended; who comes back in time is lost no more.
    """

    names: list[str]
    planned: Container[int] = ()
    cut_off: Callable[[int, int], bool] = lambda a, b: False
    own: Exception | None = None  # the launcher's: a start that failed, a limit that was reached
    has_failed: bool = False  # some node has, and nobody planned it
    anybody_well: bool = False
    _deaths: dict[int, str] = field(default_factory=dict)
    _causes: list[RunError] = field(default_factory=list)
    _reports: list[PeerLost] = field(default_factory=list)
    _cut: dict[int, PeerLost] = field(default_factory=dict)  # by the rank that reported it
    _left: bool = False  # somebody has
    _before: dict[int, tuple[str, PeerLost | None]] = field(default_factory=dict)  # who came back: why it was lost

    def died(self, rank: int, reason: str) -> None:
        self._deaths.setdefault(rank, reason)
        if rank not in self.planned:
            self._causes.append(PeerLost(rank, self.names[rank], reason))

    def ended_well(self) -> None:
        """Some node has."""
        self.anybody_well = True

    def came(self, rank: int, reason: str) -> None:
        """*rank*, which was not there for *reason*, has come."""
        cause = next((cause for cause in self._causes if isinstance(cause, PeerLost) and cause.rank == rank), None)
        if cause is not None:
            self._causes.remove(cause)
        self._deaths.pop(rank, None)
        self._before[rank] = reason, cause

    def never_came(self, rank: int, reason: str, *, planned: bool) -> None:
        """The run has ended without *rank*, which was not there for *reason*; *planned*: but was to come."""
        if planned:
            self._deaths[rank] = too_late(reason)
        elif reason == ABSENT:
            self._deaths[rank] = NEVER_JOINED

    def _came_too_late(self, rank: int) -> None:
        reason, cause = self._before[rank]
        self._deaths[rank] = too_late(reason)
        if cause is not None:
            self._causes.append(cause)

    def failed(self, rank: int, failure: Failure) -> None:
        if failure.kind == LEFT:
            self._deaths[rank], self._left = failure.text, True
            return
        if rank in self._before and failure.kind == "peer_lost" and failure.text == ENDED:
            self._came_too_late(rank)
            return
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
    def is_lost(self) -> bool:
        """Whether something has gone wrong that nobody planned."""
        return self.has_failed or bool(self._causes)

    @property
    def error(self) -> Exception | None:
        if self.own is not None:
            return self.own
        if self._causes:
            return self._causes[0]
        if self._cut and (self._reports or not self.anybody_well):
            return self._cut[min(self._cut)]
        for report in self._reports:
            if report.rank in self._deaths:
                return PeerLost(report.rank, report.name, self._deaths[report.rank])
        if self._reports:
            return self._reports[0]
        return NobodyLeft(self._by_name(self._deaths)) if self._left and not self.anybody_well else None

    @property
    def lost(self) -> dict[str, str]:
        """Who did not take part to the end, by name, and why."""
        cut = {} if self.error is not None else {rank: f"{lost}" for rank, lost in self._cut.items()}
        return self._by_name({**self._deaths, **cut})

    def _by_name(self, reasons: dict[int, str]) -> dict[str, str]:
        return {self.names[rank]: reason for rank, reason in reasons.items()}

    def _name(self, rank: int) -> str:
        """An algorithm may raise a PeerLost of its own, about anybody."""
        return self.names[rank] if 0 <= rank < len(self.names) else ""
