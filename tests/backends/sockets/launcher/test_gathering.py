"""With whom a run begins, and who may join it, before that and later."""

from __future__ import annotations

from typing import Any

import pytest
from simcluster_backends.sockets.launcher.admission import are_enough, begin_with, missing, refusal
from simcluster_backends.sockets.wire.messages import Addresses, NodeOutcome

from simcluster.errors import ABSENT
from simcluster.runs.record import NodeRecord
from tests.backends.sockets.launcher.test_comers import Heard

SOMEBODY: Any = object()


def members(*ready: int, size: int = 4) -> list[Heard]:
    """Nodes a, b, ... of which those of these ranks say where they listen."""
    found = [Heard(rank, "abcdef"[rank], by_hand=rank > 1) for rank in range(size)]
    for rank in ready:
        found[rank].connection, found[rank].listening = SOMEBODY, ("10.0.0.1", rank)
    return found


@pytest.mark.parametrize(
    ("ready", "min_workers", "enough"),
    [
        ((0, 1, 2, 3), None, True),
        ((0, 1, 2), None, False),
        ((0, 3), 2, True),
        ((0,), 2, False),
        ((1, 2, 3), 2, False),  # rank 0 serves, and evaluates
        ((0,), 1, True),
    ],
)
def test_a_run_begins_with_all_or_with_as_many_as_are_enough_and_never_without_rank_0(
    ready: tuple[int, ...], min_workers: int | None, enough: bool
) -> None:
    assert are_enough(members(*ready), min_workers) is enough


def test_whoever_is_to_join_later_is_not_waited_for() -> None:
    found = members(1, 2)
    for rank in (0, 3):
        found[rank].gone = ABSENT
    assert are_enough(found, None)
    assert are_enough(found, 4)


def test_those_who_begin_are_told_of_each_other_and_the_others_are_on_their_way_or_not_there() -> None:
    found = members(0, 2, size=6)
    found[3].connection = SOMEBODY  # has joined, and is not ready yet
    found[5].gone = ABSENT
    founders = begin_with(found)
    assert [member.rank for member in founders] == [0, 2]
    gone = dict.fromkeys((1, 3, 4, 5), ABSENT)
    places = [("10.0.0.1", 0), ("", 0), ("10.0.0.1", 2), ("", 0), ("", 0), ("", 0)]
    assert found[0].heard == found[2].heard == [Addresses(places, gone)]
    # b is started here, so its process is under way; d has joined; e is nowhere yet, and f comes when the plan says so.
    assert [(member.incarnation, member.is_coming) for member in found[3:]] == [(1, True), (0, False), (0, False)]
    assert found[1].is_coming
    assert [member.gone for member in founders] == [None, None]


def test_who_is_missing_is_told_by_what_has_not_been_done() -> None:
    found = members(0, 1)
    assert missing(found, []) == ["rank 2 (c) has not joined", "rank 3 (d) has not joined"]
    founders = begin_with(found)
    found[0].connected = True
    assert missing(found, founders) == ["rank 1 (b) has not become ready"]


def test_a_place_is_free_before_its_node_has_come_and_when_it_is_gone_but_not_when_it_has_ended() -> None:
    found = members(0)
    assert refusal("a", found) == "the name 'a' is taken"
    assert refusal("b", found) is None
    assert refusal("bb", found) == "no node 'bb' in this run; did you mean 'b'?"
    found[0].connection, found[0].gone = None, "killed"
    assert refusal("a", found) is None
    found[1].outcome = NodeOutcome(NodeRecord(1, "b"), None)
    assert refusal("b", found) == "the name 'b' is taken"
