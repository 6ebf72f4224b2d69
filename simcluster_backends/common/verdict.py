"""Which of all the things that went wrong is a run's error, and who was lost on the way."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, field

from simcluster.errors import ABSENT, NobodyLeft, NodeFailed, PeerLost, RunError
from simcluster.experiment.attribution import Report, excuse, excuses
from simcluster.fault_plans.kinds import NEVER_JOINED, too_late
from simcluster_backends.sockets.wire.messages import LEFT, Failure


@dataclass
class Verdict:
    """Collects what goes wrong, in the order in which the launcher learns of it; `error` says what the run
    died of.

    Survivors of a dead node fail with PeerLost, and survivors of those too. Their reports may come before the
    death itself is known here, so the error is found at the end: a death that nobody planned or a failure of
    its own, the first of them; else the planned death or cut that a survivor could not do without; else the first
    report there is. *planned* has the ranks that the fault plan kills, *cut_off* says of two ranks that it has cut them
    off from each other. Which reports are no failure is the rule of simcluster.experiment.attribution. A node that left
    as it was told to is no failure; one that comes back is no longer lost.
    """

    names: list[str]
    planned: Container[int] = ()
    cut_off: Callable[[int, int], bool] = lambda a, b: False
    own: Exception | None = None  # the launcher's: a start that failed, a limit that was reached
    has_failed: bool = False  # some node has, and nobody planned it
    _deaths: dict[int, str] = field(default_factory=dict)
    _causes: list[RunError] = field(default_factory=list)
    _reports: dict[int, tuple[Report, int]] = field(default_factory=dict)  # and how many had ended well before
    _ended_well: int = 0
    _left: bool = False  # somebody has
    _before: dict[int, tuple[str, PeerLost | None]] = field(default_factory=dict)  # who came back: why it was lost

    def died(self, rank: int, reason: str) -> None:
        self._deaths.setdefault(rank, reason)
        if rank not in self.planned:
            self._causes.append(PeerLost(rank, self.names[rank], reason))

    def ended_well(self) -> None:
        """Some node has."""
        self._ended_well += 1

    @property
    def anybody_well(self) -> bool:
        return bool(self._ended_well)

    def came(self, rank: int, reason: str) -> None:
        """*rank*, which was not there for *reason*, has come."""
        cause = next((cause for cause in self._causes if isinstance(cause, PeerLost) and cause.rank == rank), None)
        if cause is not None:
            self._causes.remove(cause)
        self._deaths.pop(rank, None)
        self._reports.pop(rank, None)
        self._before[rank] = reason, cause

    def never_came(self, rank: int, reason: str, *, planned: bool) -> None:
        """The run has ended without *rank*, which was not there for *reason*; *planned*: but was to come."""
        if planned:
            self._deaths[rank] = too_late(reason)
        elif reason == ABSENT:
            self._deaths[rank] = NEVER_JOINED

    def failed(self, rank: int, failure: Failure) -> None:
        if failure.kind == LEFT:
            self._deaths[rank], self._left = failure.text, True
            return
        if failure.kind == "peer_lost":
            self._misses(rank, PeerLost(failure.rank, self._name(failure.rank), failure.text))
            return
        self.has_failed = True
        if failure.kind == "start":
            self._causes.append(RunError(f"rank {rank} ({self.names[rank]}) could not start: {failure.text}"))
        elif failure.kind == "failed":
            self._causes.append(NodeFailed(rank, self.names[rank], failure.details or failure.text))

    def _misses(self, rank: int, lost: PeerLost) -> None:
        """*rank* could not go on without a peer."""
        absence, cause = self._before.get(rank, (None, None))
        report = Report(rank, lost, self.cut_off(rank, lost.rank), absence)
        self._reports[rank] = report, self._ended_well
        if excuse(report) is None:
            self.has_failed = True
        elif cause is not None:
            self._causes.append(cause)  # a death that was not planned, and that was not made good

    def _judged(self) -> tuple[list[Report], dict[int, str]]:
        """(all reports, why those that are no failure are lost)."""
        reports = [report._replace(others_ended=well == self._ended_well) for report, well in self._reports.values()]
        return reports, excuses(reports, anybody_well=self.anybody_well)

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
        reports, excused = self._judged()
        cut = {report.rank: report.lost for report in reports if report.is_cut}
        missed = [report.lost for report in reports if report.lost is not None and report.rank not in excused]
        if cut and (missed or not self.anybody_well):
            return cut[min(cut)]
        for lost in missed:
            if lost.rank in self._deaths:
                return PeerLost(lost.rank, lost.name, self._deaths[lost.rank])
        if missed:
            return missed[0]
        return NobodyLeft(self._by_name(self._deaths)) if self._left and not self.anybody_well else None

    @property
    def lost(self) -> dict[str, str]:
        """Who did not take part to the end, by name, and why."""
        reports, excused = self._judged()
        if self.error is not None:
            late = {report.rank for report in reports if report.absence is not None}
            excused = {rank: why for rank, why in excused.items() if rank in late}
        return self._by_name({**self._deaths, **excused})

    def _by_name(self, reasons: dict[int, str]) -> dict[str, str]:
        return {self.names[rank]: reason for rank, reason in reasons.items()}

    def _name(self, rank: int) -> str:
        """An algorithm may raise a PeerLost of its own, about anybody."""
        return self.names[rank] if 0 <= rank < len(self.names) else ""
