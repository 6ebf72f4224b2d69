"""What ranks did before they were lost and did not live to say: in a group that goes in step the others know.

This file knows ledgers and rows of regroups. It must not know samples, algorithms or backends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simcluster.results.record import NodeRecord, regroups

Notes = dict[str, Any]


def notes_of(node: NodeRecord, nodes: Sequence[NodeRecord]) -> list[Notes]:
    """What *node* noted in each of its lives and groups, one behind the other.

    Where it was lost, what the next group began with is used, its own batches too: it had done its part of that.
    """
    found = _flat(node)
    for row in regroups(nodes):
        if node.name in row["lost"] and _was_in(row["after"][0], node, nodes):
            found = _completed(found, row, node, nodes)
    return found


def is_known(node: NodeRecord, nodes: Sequence[NodeRecord]) -> bool:
    """Whether anything is known of its batches."""
    return bool(node.samples) or any(node.name in row["lost"] for row in regroups(nodes))


def _flat(node: NodeRecord) -> list[Notes]:
    return [part for notes in node.samples for part in (*notes.get("earlier", ()), notes)]


def _was_in(number: int, node: NodeRecord, nodes: Sequence[NodeRecord]) -> bool:
    """Whether *node* was in the group *number*: in the first one whoever did not come later."""
    rows = regroups(nodes)
    if number:
        return any(row["group"] == number and node.name in row["members"] for row in rows)
    first = next((row for row in rows if node.name in (*row["lost"], *row["joined"])), None)
    return first is None or node.name in first["lost"]


def _number(notes: Mapping[str, Any]) -> int:
    """Of the group that they are from."""
    place = notes.get("place")
    return int(place[0]) if place else 0


def _completed(
    found: Sequence[Notes], row: Mapping[str, Any], node: NodeRecord, nodes: Sequence[NodeRecord]
) -> list[Notes]:
    number, batches = row["after"]
    own = next((notes for notes in found if _number(notes) == number), None)
    if own is None:
        own = {"runs": [], "judged": [], "again": [], "joined": False, **_place(number, node, nodes)}
        found = [own, *found]
    used = [run for run in own["runs"] if run[3]]
    begun = [
        notes["runs"][0][0] for other in nodes for notes in _flat(other) if _number(notes) == number and notes["runs"]
    ]
    end = max((first + count * width for first, count, width, _ in used), default=min(begun, default=0))
    if end >= batches:
        return list(found)
    beyond = [run for run in own["runs"] if not run[3] and run[0] >= batches]
    whole = {**own, "runs": [*used, [end, batches - end, 1, 1], *beyond]}
    return [whole if notes is own else notes for notes in found]


def _place(number: int, node: NodeRecord, nodes: Sequence[NodeRecord]) -> dict[str, list[int]]:
    """Where *node* was in the group *number*; in the first one, at its own rank."""
    for row in regroups(nodes):
        if row["group"] == number:
            return {"place": [number, row["members"].index(node.name), len(row["members"])]}
    return {}
