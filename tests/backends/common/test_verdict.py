"""Which of all the things that went wrong is the run's error, whatever the order in which they are reported."""

from __future__ import annotations

from simcluster_backends.common.failure import LEFT, Failure
from simcluster_backends.common.verdict import Verdict

from simcluster.errors import ENDED, NobodyLeft, NodeFailed, PeerLost, RunError


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


def test_of_several_failures_the_verdict_is_the_first_in_time_whatever_is_reported_first() -> None:
    bug = Failure("failed", "ValueError: x", details="Traceback\nValueError: x")
    verdict = Verdict(list("abcd"))
    verdict.failed(0, bug, at_s=2.0)
    verdict.died(3, "its process is gone", at_s=1.75)
    verdict.failed(1, peer_lost(2))
    verdict.failed(2, bug, at_s=1.5)
    assert isinstance(verdict.error, NodeFailed)
    assert verdict.error.rank == 2


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


CRASHED = "crashed by the fault plan"


def test_who_came_back_is_lost_no_more_whether_its_death_was_planned_or_not() -> None:
    verdict = Verdict(list("abc"), planned={1})
    verdict.died(1, CRASHED)
    verdict.died(2, "its process is gone")
    assert set(verdict.lost) == {"b", "c"}
    verdict.came(1, CRASHED)
    verdict.came(2, "its process is gone")
    assert verdict.lost == {}
    assert verdict.error is None
    verdict.died(2, "its process is gone again")
    assert isinstance(verdict.error, PeerLost)
    assert verdict.error.reason == "its process is gone again"


def test_who_came_back_and_found_that_the_others_had_ended_is_lost_and_fails_nothing() -> None:
    verdict = Verdict(list("abc"), planned={1})
    for rank, reason in ((1, CRASHED), (2, "has not joined yet")):
        verdict.came(rank, reason)
    verdict.ended_well()
    for rank in (1, 2):
        verdict.failed(rank, Failure("peer_lost", ENDED, 0))
    assert verdict.error is None
    assert not verdict.has_failed
    assert verdict.lost == {"b": f"{CRASHED}, and came back too late", "c": "joined too late"}


def test_deaths_without_which_a_node_ended_well_are_losses_and_no_error() -> None:
    verdict = Verdict(list("abc"))
    verdict.died(2, "its process is gone")
    assert isinstance(verdict.error, PeerLost), "as long as no node has ended well"
    verdict.ended_well()
    assert verdict.error is None
    assert verdict.lost == {"c": "its process is gone"}
    verdict.failed(1, peer_lost(2))
    assert isinstance(verdict.error, PeerLost), "a node that is left needed it"


def test_an_unplanned_death_that_was_made_good_too_late_is_a_loss() -> None:
    verdict = Verdict(list("ab"))
    verdict.died(1, "its process is gone")
    verdict.came(1, "its process is gone")
    verdict.ended_well()
    verdict.failed(1, Failure("peer_lost", ENDED, 0))
    assert verdict.error is None
    assert verdict.lost == {"b": "its process is gone, and came back too late"}


def test_a_late_comer_that_misses_another_node_is_lost_and_fails_nothing_if_one_ends_well() -> None:
    verdict = Verdict(list("abcd"), planned={1, 2})
    verdict.died(2, CRASHED)
    for rank, reason in ((1, CRASHED), (3, "has not joined yet")):
        verdict.came(rank, reason)
    verdict.failed(1, peer_lost(2))
    assert not verdict.has_failed, "the others train on"
    assert isinstance(verdict.error, PeerLost), "as long as no node has ended well"
    verdict.ended_well()
    verdict.failed(3, peer_lost(2))
    assert verdict.error is None
    why = "rank 2 (c) is lost: the connection was closed"
    assert verdict.lost == {"b": why, "c": CRASHED, "d": "joined too late"}, "rank 0 had ended when d gave up"


def test_a_late_comer_whose_own_code_raises_fails_the_run() -> None:
    verdict = Verdict(list("ab"), planned={1})
    verdict.came(1, CRASHED)
    verdict.ended_well()
    verdict.failed(1, Failure("failed", "ValueError: x", details="Traceback\nValueError: x"))
    assert verdict.has_failed
    assert isinstance(verdict.error, NodeFailed)


def test_a_node_that_was_there_from_the_beginning_and_misses_a_peer_fails_the_run() -> None:
    verdict = Verdict(list("abc"), planned={1})
    verdict.came(1, CRASHED)
    verdict.ended_well()
    verdict.failed(2, peer_lost(1))
    assert verdict.has_failed
    assert isinstance(verdict.error, PeerLost)


def test_a_late_comer_that_fails_and_comes_once_more_is_lost_no_more() -> None:
    verdict = Verdict(list("ab"), planned={1})
    verdict.came(1, CRASHED)
    verdict.failed(1, peer_lost(0))
    verdict.came(1, "failed")
    verdict.ended_well()
    assert verdict.error is None
    assert verdict.lost == {}


def test_who_never_came_is_told_by_whether_the_plan_was_to_bring_it() -> None:
    verdict = Verdict(list("abcd"), planned={1})
    verdict.died(1, CRASHED)
    verdict.never_came(1, CRASHED, planned=True)
    verdict.never_came(2, "has not joined yet", planned=True)
    verdict.never_came(3, "has not joined yet", planned=False)
    assert list(verdict.lost.values()) == [f"{CRASHED}, and came back too late", "joined too late", "never joined"]
    assert verdict.error is None


def test_who_left_is_lost_with_its_step_and_the_run_fails_only_if_nobody_ends_well() -> None:
    verdict = Verdict(list("ab"))
    verdict.failed(1, Failure(LEFT, "left at step 7"))
    assert not verdict.has_failed
    assert verdict.lost == {"b": "left at step 7"}
    assert isinstance(verdict.error, NobodyLeft)
    verdict.ended_well()
    assert verdict.error is None


def test_a_run_is_lost_for_what_nobody_planned_and_not_for_what_the_plan_did() -> None:
    verdict = Verdict(list("ab"), planned={1})
    verdict.died(1, CRASHED)
    assert not verdict.is_lost
    verdict.died(0, "its process is gone")
    assert verdict.is_lost
