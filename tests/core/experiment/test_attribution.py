"""One rule says on both backends whether a node that could not go on fails the run."""

from __future__ import annotations

import pytest
from simcluster_backends.common.verdict import FailureReport, excuse, excuses

from simcluster.errors import ENDED, TIME_IS_UP, PeerLost

CRASHED = "crashed by the fault plan"
DEAD, DONE, MISSED = PeerLost(2, "c", CRASHED), PeerLost(2, "c", ENDED), PeerLost(2, "c", TIME_IS_UP)


@pytest.mark.parametrize(
    ("report", "why"),
    [
        (FailureReport(0, DEAD), None),
        (FailureReport(0, DONE), None),
        (FailureReport(0, DEAD, is_cut=True), f"{DEAD}"),
        (FailureReport(0, DEAD, absence=CRASHED), f"{DEAD}"),
        (FailureReport(0, DEAD, absence=CRASHED, others_ended=True), f"{CRASHED}, and came back too late"),
        (FailureReport(0, DONE, absence="has not joined yet"), "joined too late"),
        (FailureReport(0, MISSED, absence=CRASHED), f"{CRASHED}, and came back too late"),
        (FailureReport(0, MISSED), None),
        (FailureReport(0, None, is_cut=True, absence=CRASHED, others_ended=True), None),
    ],
)
def test_a_late_comer_and_a_node_that_is_cut_off_are_lost_for_a_peer_and_a_bug_is_a_failure(
    report: FailureReport, why: str | None
) -> None:
    assert excuse(report) == why
    assert excuses([report], any_ended_well=True) == ({} if why is None else {0: why})


def test_if_no_node_ended_well_only_those_that_the_plan_has_cut_off_are_excused() -> None:
    reports = [FailureReport(0, DEAD, is_cut=True), FailureReport(1, DEAD, absence=CRASHED)]
    assert list(excuses(reports, any_ended_well=True)) == [0, 1]
    assert list(excuses(reports, any_ended_well=False)) == [0]
