"""Which of all the things that went wrong is the run's error, whatever the order in which they are reported."""

from __future__ import annotations

from backends.sockets.control import Failure
from backends.sockets.verdict import Verdict
from simcluster.errors import NodeFailed, PeerLost, RunError


def peer_lost(rank: int) -> Failure:
    return Failure("peer_lost", "the connection was closed", rank)


def test_the_verdict_is_the_death_even_if_survivors_reported_first() -> None:
    verdict = Verdict(list("abcd"))
    verdict.failed(0, peer_lost(2))
    verdict.failed(1, peer_lost(0))
    verdict.died(2, "its process is gone")
    assert isinstance(verdict.error, PeerLost)
    assert (verdict.error.rank, verdict.error.reason) == (2, "its process is gone")


def test_the_verdict_on_a_planned_crash_is_clean_unless_somebody_needed_the_dead() -> None:
    verdict = Verdict(list("abcd"), planned={2})
    verdict.died(2, "crashed by the fault plan")
    assert verdict.error is None
    verdict.failed(1, peer_lost(0))
    verdict.failed(0, peer_lost(2))
    assert isinstance(verdict.error, PeerLost)
    assert (verdict.error.rank, verdict.error.reason) == (2, "crashed by the fault plan")


def test_the_verdict_prefers_a_bug_to_the_losses_it_causes() -> None:
    verdict = Verdict(list("abcd"))
    verdict.failed(0, peer_lost(1))
    verdict.failed(1, Failure("failed", "ValueError: x", details="Traceback\nValueError: x"))
    assert isinstance(verdict.error, NodeFailed)
    assert verdict.error.rank == 1


def test_the_verdict_on_somebody_who_waits_for_a_peer_that_ended_well_is_that_loss() -> None:
    verdict = Verdict(list("ab"))
    verdict.failed(0, Failure("peer_lost", "ended its algorithm", 1))
    assert isinstance(verdict.error, PeerLost)
    assert verdict.error.reason == "ended its algorithm"


def test_the_verdict_on_those_who_were_stopped_is_nothing() -> None:
    verdict = Verdict(list("ab"))
    verdict.failed(0, Failure("stopped", "the run has failed"))
    assert verdict.error is None
    verdict.failed(1, Failure("start", "no answer"))
    assert isinstance(verdict.error, RunError)
    assert "rank 1 (b) could not start: no answer" in str(verdict.error)
