"""Decide which failure is a run's error, and which nodes were lost: one rule for every backend."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from simcluster.errors import ABSENT, ENDED, TIME_IS_UP, NobodyLeft, NodeFailed, PeerLost, RunError
from simcluster.fault_plans.kinds import NEVER_JOINED, too_late
from simcluster_backends.common.failure import LEFT, Failure


class FailureReport(NamedTuple):
    """The failure of *rank*: its algorithm raised *lost*, or if None, another error, or it died.

    *is_cut* means that the plan had cut the node off from the lost peer. *absence* is the reason
    why the node was absent before, None if it was present from the beginning. *others_ended* means
    that no node has ended well since this failure; *ended_well* is the number of nodes that had
    ended well before it. *error* is set if this failure can be the run's error. *at_s* is the time
    of the failure in the run.
    """

    rank: int
    lost: PeerLost | None
    is_cut: bool = False
    absence: str | None = None
    others_ended: bool = False
    error: RunError | None = None
    ended_well: int = 0
    at_s: float = 0.0

    @property
    def is_death(self) -> bool:
        """Whether the node died, instead of raising an error."""
        return self.lost is None and isinstance(self.error, PeerLost)


def excuse(report: FailureReport) -> str | None:
    """Return the reason why the node of *report* counts as lost; None if its failure fails the run.

    A node that joined late, or rejoined, counts as lost if it needs a lost peer. So does a node
    that the plan has cut off from that peer. Any other error in a node fails the run.
    """
    if report.lost is None:
        return None
    if report.absence is not None and (report.lost.reason in (ENDED, TIME_IS_UP) or report.others_ended):
        return too_late(report.absence)
    return str(report.lost) if report.is_cut or report.absence is not None else None


def excuses(reports: Iterable[FailureReport], *, any_ended_well: bool) -> dict[int, str]:
    """Return the `excuse` of each node of *reports* that has one, by rank.

    If no node has ended well, only planned cut-offs are excuses: the error of a late node may be
    the cause.
    """
    given = {report.rank: excuse(report) for report in reports if any_ended_well or report.is_cut}
    return {rank: why for rank, why in given.items() if why is not None}


@dataclass
class Verdict:
    """The failures of a run: `error` is the one that ended the run, `lost` the nodes that it lost.

    With *in_order*, reports come in order of occurrence, and the first is the cause. Only a
    simulator can ensure this. On real nodes, survivors of a dead node, and their peers in turn, may
    report before the death is known. So the error is the first of these that exists: the earliest
    unplanned death or failure of a node's own code, by the times in the reports; the planned death
    of a node, or cut-off from a node, that a survivor needed; the first report. Deaths alone are no
    error if a node has ended well and none has failed: the survivors did not need the dead nodes.

    *planned* has the ranks that the fault plan kills. *cut_off* returns whether the plan has cut
    two ranks off from each other. `excuses` decides which reports do not count as failures. A node
    that left on request has not failed. A node that returns is no longer lost.
    """

    names: list[str]
    planned: Container[int] = ()
    cut_off: Callable[[int, int], bool] = lambda a, b: False
    in_order: bool = False
    own: RunError | None = None  # the judging process's error: a failed start, or an exceeded limit
    has_failed: bool = False  # whether a node has failed against the plan
    _deaths: dict[int, str] = field(default_factory=dict)
    _causes: list[FailureReport] = field(default_factory=list)
    _ended_well: int = 0
    _left: bool = False  # whether a node has left on request
    # Rank that has come back -> the reason for its absence, and the report of its unplanned death.
    _before: dict[int, tuple[str, FailureReport | None]] = field(default_factory=dict)

    def died(self, rank: int, reason: str, at_s: float = 0.0) -> None:
        self._deaths.setdefault(rank, reason)
        if rank not in self.planned:
            self._add(rank, PeerLost(rank, self.names[rank], reason), at_s)

    def ended_well(self) -> None:
        """Count a node that ended well."""
        self._ended_well += 1

    @property
    def any_ended_well(self) -> bool:
        return bool(self._ended_well)

    def came(self, rank: int, reason: str) -> None:
        """Record that *rank*, which was absent for *reason*, has come."""
        causes = [cause for cause in self._causes if cause.rank == rank]
        death = next((cause for cause in causes if cause.is_death), None)
        gone = [cause for cause in causes if cause is death or cause.lost is not None]
        self._causes = [cause for cause in self._causes if cause not in gone]
        self._deaths.pop(rank, None)
        self._before[rank] = reason, death

    def never_came(self, rank: int, reason: str, *, planned: bool) -> None:
        """Record that the run ended without *rank*, absent for *reason*.

        *planned* says whether *rank* was expected to come."""
        if planned:
            self._deaths[rank] = too_late(reason)
        elif reason == ABSENT:
            self._deaths[rank] = NEVER_JOINED
        else:
            self._deaths[rank] = reason

    def failed(self, rank: int, failure: Failure, at_s: float = 0.0) -> None:
        if failure.kind == LEFT:
            self.left(rank, failure.text)
        elif failure.kind == "peer_lost":
            self.raised(rank, PeerLost(failure.rank, self._name(failure.rank), failure.text))
        elif failure.kind == "start":
            self.raised(rank, RunError(f"rank {rank} ({self.names[rank]}) could not start: {failure.text}"), at_s)
        elif failure.kind == "failed":
            self.raised(rank, NodeFailed(rank, self.names[rank], failure.details or failure.text), at_s)
        else:
            self.has_failed = True  # "stopped": the judging process ended it, so it is not a cause

    def left(self, rank: int, reason: str) -> None:
        """Record that *rank* left on request."""
        self._deaths[rank], self._left = reason, True

    def raised(self, rank: int, error: RunError, at_s: float = 0.0) -> None:
        """Record that *rank* could not continue: it lost a peer, or its own code raised."""
        if not isinstance(error, PeerLost):
            self.has_failed = True
            self._add(rank, error, at_s)
            return
        absence, death = self._before.get(rank, (None, None))
        is_cut = self.cut_off(rank, error.rank)
        report = FailureReport(rank, error, is_cut, absence, error=error, ended_well=self._ended_well)
        self._causes.append(report)
        if excuse(report) is None:
            self.has_failed = True
        elif death is not None:
            # The node came back, but could not take part: its unplanned death counts after all.
            self._causes.append(death)

    @property
    def is_lost(self) -> bool:
        """Whether a failure or death has occurred that was not planned."""
        return self.has_failed or any(cause.lost is None for cause in self._causes)

    @property
    def error(self) -> RunError | None:
        if self.own is not None:
            return self.own
        excused = self._excused()
        rest = [cause for cause in self._causes if cause.lost is None or cause.rank not in excused]
        missed = [cause.lost for cause in rest if cause.lost is not None]
        cut = {cause.rank: cause.lost for cause in self._causes if cause.is_cut}
        if cut and len(missed) == len(rest) and (missed or not self.any_ended_well):
            return cut[min(cut)]
        if self.any_ended_well and all(cause.is_death for cause in rest):
            return None  # no survivor needed the lost nodes
        if rest:
            return rest[0].error if self.in_order else self._likeliest(rest)
        return NobodyLeft(self._by_name(self._deaths)) if self._left and not self.any_ended_well else None

    @property
    def lost(self) -> dict[str, str]:
        """Name of each node that did not take part to the end -> the reason."""
        excused = self._excused()
        if self.error is not None:
            late = {cause.rank for cause in self._causes if cause.absence is not None}
            excused = {rank: why for rank, why in excused.items() if rank in late and not self.in_order}
        return self._by_name({**self._deaths, **excused})

    def _add(self, rank: int, error: RunError, at_s: float) -> None:
        self._causes.append(FailureReport(rank, None, error=error, ended_well=self._ended_well, at_s=at_s))

    def _likeliest(self, causes: list[FailureReport]) -> RunError:
        own = [(cause.at_s, cause.error) for cause in causes if cause.lost is None and cause.error is not None]
        if own:
            return min(own, key=lambda found: found[0])[1]
        losses = [cause.lost for cause in causes if cause.lost is not None]
        dead = next((lost for lost in losses if lost.rank in self._deaths), None)
        return PeerLost(dead.rank, dead.name, self._deaths[dead.rank]) if dead is not None else losses[0]

    def _excused(self) -> dict[int, str]:
        """Return the reasons, by rank, of the nodes that are lost but have not failed the run."""
        well, lost = self._ended_well, [cause for cause in self._causes if cause.lost is not None]
        reports = [cause._replace(others_ended=cause.ended_well == well) for cause in lost]
        return dict(sorted(excuses(reports, any_ended_well=self.any_ended_well).items()))

    def _by_name(self, reasons: dict[int, str]) -> dict[str, str]:
        return {self.names[rank]: reason for rank, reason in reasons.items()}

    def _name(self, rank: int) -> str:
        """Return the name of *rank*, or "": an algorithm's own PeerLost may have any rank."""
        return self.names[rank] if 0 <= rank < len(self.names) else ""
