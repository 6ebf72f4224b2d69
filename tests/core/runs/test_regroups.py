"""Groups that were formed anew, as a run's folder tells of them."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

from simcluster.errors import PeerLost
from simcluster.experiment.restarts import Restarts
from simcluster.fault_plans.kinds import UNTRAINED
from simcluster.job import ClusterJob
from simcluster.lab.reports.report_tables import regroups_table
from simcluster.runs.record import NodeRecord, RunRecord, regroups, standing
from simcluster.runs.trace import group_events


def row(group: int, **keys: object) -> dict[str, object]:
    fixed = {"time_s": 0.5, "step": 7, "lost": ["b"], "joined": [], "members": ["a", "c"], "after": [0, 7]}
    return {**fixed, "group": group, **keys}


def test_an_instant_of_the_trace_says_who_goes_on_from_where() -> None:
    name, instant = group_events([row(1)], pid=4)
    assert name["args"] == {"name": "groups"}
    assert (instant["ph"], instant["ts"], instant["pid"]) == ("i", 500_000.0, 4)
    assert instant["name"] == "2 ranks from step 7"
    assert instant["args"] == {"lost": ["b"], "joined": [], "members": ["a", "c"]}
    assert list(group_events([], pid=4)) == [], "a run that lost nobody has no such process"


def test_a_row_of_the_report_has_a_cell_for_each_question() -> None:
    run: Any = SimpleNamespace(summary={"regroups": [row(1, joined=["d"]), row(2)]})
    cells = re.findall(r"<td[^>]*>(.*?)</td>", regroups_table(run))
    assert cells == ["500 ms", "7", "b", "d", "a, c", "500 ms", "7", "b", "-", "a, c"]


def test_groups_are_told_once_in_order_though_nobody_was_in_all_of_them() -> None:
    first = NodeRecord(0, "a", regroups=[row(2, joined=["a"])])  # came back, and knows of the last one only
    second = NodeRecord(1, "c", regroups=[row(1, time_s=0.2), row(2, time_s=0.6)])
    assert [(found["group"], found["time_s"]) for found in regroups([first, second])] == [(1, 0.2), (2, 0.5)]


def test_the_first_rank_of_the_last_group_stands_for_the_run() -> None:
    dead, second, third = NodeRecord(0, "a"), NodeRecord(1, "b"), NodeRecord(2, "c")
    assert standing([dead, second, third]) is dead
    second.group_number, second.group_rank = 1, 0
    third.group_number, third.group_rank = 1, 1
    assert standing([dead, second, third]) is second


def test_a_dead_or_untrained_rank_does_not_stand_for_the_run() -> None:
    dead, untrained = NodeRecord(0, "a", trained=True, steps=1), NodeRecord(1, "b", ended_well=True, incarnation=1)
    third, fourth = (NodeRecord(rank, name, ended_well=True, trained=True) for rank, name in ((2, "c"), (3, "d")))
    assert standing([dead, untrained, third, fourth]) is third
    dead.group_number, dead.group_rank = 1, 0  # it died in a group that all others had ended before
    assert standing([dead, untrained, third, fourth]) is third
    assert standing([dead, untrained]) is dead, "no node ended well: the last group says how far the run came"
    dead.steps = 0
    assert standing([dead, untrained]) is untrained, "the time was up before any node had taken a step"
    there = NodeRecord(2, "c", ended_well=True)
    assert standing([dead, untrained, there]) is there, "its weights may have changed within a step"
    untrained.trained = True  # it was let in and given the state, of step 0
    for rank, node in enumerate((untrained, there)):
        node.group_number, node.group_rank = 2, rank
    assert standing([dead, untrained, there]) is there


def test_a_group_counts_once_its_first_rank_has_begun_it() -> None:
    first, second = (NodeRecord(rank, name, ended_well=True) for rank, name in ((0, "a"), (1, "b")))
    second.group_number, second.group_rank = 1, 1  # the time was up before the first rank had begun the new group
    assert standing([first, second]) is first


def test_a_run_that_went_on_in_another_group_is_not_begun_again() -> None:
    # Nobody had planned the loss, so it is the run's error all the same.
    nodes = [NodeRecord(0, "a", regroups=[row(1)], group_number=1, group_rank=0), NodeRecord(1, "b")]
    record = RunRecord(nodes, 1.0, 1.0, PeerLost(1, "b", "its process is gone"))
    restarts = Restarts(ClusterJob(["a", "b"], "{}"), most=1)
    nodes[0].is_through = True
    assert not restarts.again(record)
    nodes[0].is_through = False  # it did not come to the end either
    assert restarts.again(record)


def test_a_model_that_rank_0_was_to_put_together_is_lost_with_it() -> None:
    ended = [
        NodeRecord(rank, name, ended_well=True, trained=True, holds_part=True) for rank, name in ((1, "b"), (2, "c"))
    ]
    record = RunRecord([NodeRecord(0, "a", trained=True), *ended], 1.0, 1.0, extra={"lost": {"a": "crashed"}})
    assert Restarts(ClusterJob(["a", "b", "c"], "{}"), most=1).again(record)
    assert str(record.error) == "rank 0 (a) is lost: crashed"
    dead = RunRecord([NodeRecord(0, "a", trained=True)], 1.0, 1.0, extra={"lost": {"a": "crashed"}})
    assert Restarts(ClusterJob(["a"], "{}"), most=1).again(dead), "a run whose every node died is not done"
    back = RunRecord([NodeRecord(0, "a", ended_well=True, incarnation=1, steps=1), *ended], 1.0, 1.0)
    assert Restarts(ClusterJob(["a", "b", "c"], "{}"), most=1).again(back)
    assert str(back.error) == f"rank 0 (a) is lost: {UNTRAINED}"
    whole = RunRecord([NodeRecord(0, "a", ended_well=True), *ended], 1.0, 1.0)
    assert not Restarts(ClusterJob(["a", "b", "c"], "{}"), most=1).again(whole)
    assert whole.error is None
    assert whole.standing.name == "a"
