"""The samples of ranks that were lost before they could report them: in a group that is in step, the others know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from simcluster.runs.record import NodeRecord, regroups
from simcluster.workloads.books import Notes
from simcluster.workloads.ledger import Fate

NOTHING: Final[Notes] = {
    "runs": [], "judged": [], "held": [], "incarnation": 0, "joined": False, "in_step": True, "partial": True
}  # fmt: skip


def notes_of(node: NodeRecord, nodes: Sequence[NodeRecord]) -> list[Notes]:
    """The notes of *node*, of each of its lives and groups in turn.

    If its last words in a life are not known, what the next group began with is used, its own batches too: it had done
    its part of that.
    """
    lives = [*node.samples] or [{**NOTHING}]
    rows = [row for row in regroups(nodes) if node.name in row["lost"]]
    found: list[Notes] = []
    for life in lives:
        parts = [*life.get("earlier", ()), life]
        for row in rows if life["partial"] else ():
            if number_of(parts[-1]) <= row["after"][0] and _was_in(row["after"][0], node, nodes):
                parts = _completed(parts, row, node, nodes)
        found += parts
    return found


def is_known(node: NodeRecord, nodes: Sequence[NodeRecord]) -> bool:
    """Whether anything is known of its batches."""
    return bool(node.samples) or any(node.name in row["lost"] for row in regroups(nodes))


def number_of(notes: Mapping[str, Any]) -> int:
    """Of the group of ranks that *notes* are from."""
    place = notes.get("place")
    return int(place[0]) if place else 0


def _flat(node: NodeRecord) -> list[Notes]:
    return [part for notes in node.samples for part in (*notes.get("earlier", ()), notes)]


def _was_in(number: int, node: NodeRecord, nodes: Sequence[NodeRecord]) -> bool:
    """Whether *node* was in the group *number*: in the first one whoever did not come later."""
    rows = regroups(nodes)
    if number:
        return any(row["group"] == number and node.name in row["members"] for row in rows)
    first = next((row for row in rows if node.name in (*row["lost"], *row["joined"])), None)
    return first is None or node.name in first["lost"]


def _completed(
    parts: Sequence[Notes], row: Mapping[str, Any], node: NodeRecord, nodes: Sequence[NodeRecord]
) -> list[Notes]:
    number, batches = row["after"]
    own = next((notes for notes in parts if number_of(notes) == number), None)
    if own is None:
        own = {**NOTHING, "incarnation": parts[-1]["incarnation"], **_place(number, node, nodes)}
        parts = [*parts, own]
    settled = [run for run in own["runs"] if run[3] != Fate.IN_HAND]
    begun = [
        notes["runs"][0][0] for other in nodes for notes in _flat(other) if number_of(notes) == number and notes["runs"]
    ]
    end = max((first + count * width for first, count, width, _ in settled), default=min(begun, default=0))
    if end >= batches:
        return list(parts)
    beyond = [run for run in own["runs"] if run[3] == Fate.IN_HAND and run[0] >= batches]
    whole = {**own, "runs": [*settled, [end, batches - end, 1, int(Fate.USED)], *beyond]}
    return [whole if notes is own else notes for notes in parts]


def _place(number: int, node: NodeRecord, nodes: Sequence[NodeRecord]) -> dict[str, list[int]]:
    """Where *node* was in the group *number*; in the first one, at its own rank."""
    for row in regroups(nodes):
        if row["group"] == number:
            return {"place": [number, row["members"].index(node.name), len(row["members"])]}
    return {}
