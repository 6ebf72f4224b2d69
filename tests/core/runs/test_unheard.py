"""What a rank did that died before it could say so: known from the step with which the others go on."""

from __future__ import annotations

from typing import Any

from simcluster.runs.record import NodeRecord
from simcluster.runs.samples import SampleNodes, are_known, notes_of
from simcluster.workloads.progress.ledger import Fate, Ledger

IN_HAND = int(Fate.IN_HAND)


def notes(*runs: list[int], place: list[int] | None = None, partial: bool = True, **keys: Any) -> dict[str, Any]:
    found: dict[str, Any] = {**Ledger().notes(), "runs": list(runs), "partial": partial}
    return found | ({"place": place, "earlier": []} if place else {}) | keys


def formed(group: int, after: tuple[int, int], lost: str = "", joined: str = "", members: str = "ac") -> dict[str, Any]:
    return {"group": group, "after": list(after), "lost": [*lost], "joined": [*joined], "members": [*members]}


def world(*of_b: dict[str, Any], rows: list[dict[str, Any]]) -> list[NodeRecord]:
    a = NodeRecord(0, "a", samples=[notes([0, 9, 1, 1])], regroups=rows)
    return [a, NodeRecord(1, "b", samples=list(of_b)), NodeRecord(2, "c", samples=[notes([0, 9, 1, 1])])]


def runs_of(nodes: list[NodeRecord]) -> list[list[list[int]]]:
    return [found["runs"] for found in notes_of(nodes[1], SampleNodes(nodes))]


def test_one_that_never_said_a_word_has_done_what_the_next_group_begins_with() -> None:
    nodes = world(rows=[formed(1, (0, 7), lost="b")])
    assert are_known(nodes)
    assert runs_of(nodes) == [[[0, 7, 1, 1]]]
    assert not are_known(world(rows=[])), "without others that went on nobody knows"


def test_its_last_words_are_brought_up_to_that() -> None:
    # said at its last heartbeat: five batches, and a sixth in hand, which has come to be used, too
    nodes = world(notes([0, 5, 1, 1], [5, 1, 1, IN_HAND]), rows=[formed(1, (0, 7), lost="b")])
    assert runs_of(nodes) == [[[0, 5, 1, 1], [5, 2, 1, 1]]]


def test_whoever_said_all_is_believed() -> None:
    said = [[0, 7, 1, 1], [7, 1, 1, IN_HAND]]
    assert runs_of(world(notes(*said), rows=[formed(1, (0, 7), lost="b")])) == [said]
    # A group that it left may have ended two more steps in which nothing of it was needed.
    assert runs_of(world(notes(*said, partial=False), rows=[formed(1, (0, 9), lost="b")])) == [said]


def test_in_a_later_group_it_was_at_its_place_there() -> None:
    rows = [formed(1, (0, 4), lost="c", members="ab"), formed(2, (1, 6), lost="b", members="a")]
    nodes = world(notes([0, 4, 1, 1]), rows=rows)
    nodes[0].samples = [notes([4, 5, 1, 1], place=[1, 0, 2], earlier=[notes([0, 4, 1, 1])])]
    found = notes_of(nodes[1], SampleNodes(nodes))
    assert [(one.get("place"), one["runs"]) for one in found] == [(None, [[0, 4, 1, 1]]), ([1, 1, 2], [[4, 2, 1, 1]])]


def test_who_came_later_had_no_part_in_the_group_before() -> None:
    rows = [formed(1, (0, 4), joined="b", members="abc"), formed(2, (0, 4), lost="b")]
    assert runs_of(world(notes(), rows=rows)) == [[]]
