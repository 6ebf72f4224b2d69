"""Evaluation of the ledgers of all ranks together.

The server's ledger says whether a batch that was handed in was used or lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from simcluster.workloads.progress.ledger import OWN, Fate, Ledger

SERVER = 0
"""The rank whose ledger decides on the batches that ranks hand in."""

Notes = dict[str, Any]
Batches = tuple[int, int, Fate]
"""One group: (first batch, number of batches, fate)."""


def groups_of(notes: Mapping[str, Any]) -> list[Batches]:
    """Return the groups in *notes*, one by one."""
    return [
        (start, width, Fate(fate))
        for first, count, width, fate in notes["runs"]
        for start in range(first, first + count * width, width)
    ]


def closed(
    ranks: Sequence[Sequence[Notes]], server: Sequence[Notes] | None = None, *, held: bool = False
) -> list[list[Notes]]:
    """Return the notes of each rank and incarnation, with every group that was handed in resolved
    to used or lost.

    *server*: the notes of rank 0 that decide which groups were used, by default all notes of rank
    0. *held*: whether groups that the server held count as used. If the server received a group
    that its sender failed to report, the group is added with as many batches as the group before
    it.
    """
    lives = [[{**notes, "judged": []} for notes in of_rank] for of_rank in ranks]
    verdicts = _verdicts(ranks[SERVER] if server is None else server, held) if ranks else {}
    for rank, life in verdicts:
        if not any(notes["incarnation"] == life for notes in lives[rank]):
            # The server received pushes of an incarnation that left no notes.
            lives[rank].append(Ledger().notes(in_hand=True) | {"incarnation": life})
    for rank, of_rank in enumerate(lives):
        width = next((run[2] for notes in of_rank for run in notes["runs"] if run[3] == Fate.HANDED_IN), 1)
        for notes in of_rank:
            came, taken = verdicts.get((rank, notes["incarnation"]), (0, set()))
            notes["runs"] = list(_judged(groups_of(notes), came, taken, width))
    return lives


def _verdicts(server: Iterable[Notes], held: bool) -> dict[tuple[int, int], tuple[int, set[int]]]:
    """Return (rank, incarnation) -> (number of groups that the server received, numbers of the
    groups that it took).
    """
    found: dict[tuple[int, int], tuple[int, set[int]]] = {}
    for notes in server:
        for rank, life, came, taken in notes["judged"]:
            numbers = {number for first, count in taken for number in range(first, first + count)}
            numbers |= {group[2] for group in notes["held"] if held and group[:2] == [rank, life]}
            found[SERVER if rank == OWN else rank, life] = came, numbers
    return found


def _judged(groups: Sequence[Batches], came: int, taken: set[int], width: int) -> Iterator[list[int]]:
    """Yield *groups* as runs. The server has received *came* groups and has taken those with a
    number in *taken*.
    """
    missing = came - sum(fate is Fate.HANDED_IN for _, _, fate in groups)
    number = end = 0
    for first, wide, fate in groups:
        if fate is Fate.IN_HAND and missing > 0:
            continue  # the rank handed it in after its last report: see the loop below
        if fate is Fate.HANDED_IN:
            fate = Fate(number in taken)
            number = number + 1
            width = wide
        yield [first, 1, wide, int(fate)]
        end = first + wide
    for late in range(max(missing, 0)):
        yield [end + late * width, 1, width, int(number + late in taken)]
