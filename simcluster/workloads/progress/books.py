"""The ledgers of all ranks, read together: the server decides if a batch handed in is used or lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from simcluster.workloads.progress.ledger import OWN, Fate, Ledger

SERVER: Final = 0
"""The rank that judges the batches that other ranks hand in."""

Notes = dict[str, Any]
Batches = tuple[int, int, Fate]
"""(first batch, batches, fate) of one group."""


def groups_of(notes: Mapping[str, Any]) -> list[Batches]:
    """The groups in *notes*, one by one."""
    return [
        (start, width, Fate(fate))
        for first, count, width, fate in notes["runs"]
        for start in range(first, first + count * width, width)
    ]


def closed(
    ranks: Sequence[Sequence[Notes]], server: Sequence[Notes] | None = None, *, held: bool = False
) -> list[list[Notes]]:
    """Return the notes of each rank, per life, with every group that was handed in resolved to used or lost.

    *server*: the notes of rank 0 to judge by; by default all of them. *held*: groups that the server held count as
    used. A group that the server received but its sender did not live to report is added, as wide as the group before
    it.
    """
    lives = [[{**notes, "judged": []} for notes in of_rank] for of_rank in ranks]
    verdicts = _verdicts(ranks[SERVER] if server is None else server, held) if ranks else {}
    for rank, life in verdicts:
        if not any(notes["incarnation"] == life for notes in lives[rank]):
            lives[rank].append(Ledger().notes(in_hand=True) | {"incarnation": life})  # unheard of
    for rank, of_rank in enumerate(lives):
        width = next((run[2] for notes in of_rank for run in notes["runs"] if run[3] == Fate.HANDED_IN), 1)
        for notes in of_rank:
            came, taken = verdicts.get((rank, notes["incarnation"]), (0, set()))
            notes["runs"] = list(_judged(groups_of(notes), came, taken, width))
    return lives


def _verdicts(server: Iterable[Notes], held: bool) -> dict[tuple[int, int], tuple[int, set[int]]]:
    """(rank, incarnation) -> (how many groups came to the server, the numbers of those that it took)."""
    found: dict[tuple[int, int], tuple[int, set[int]]] = {}
    for notes in server:
        for rank, life, came, taken in notes["judged"]:
            numbers = {number for first, count in taken for number in range(first, first + count)}
            numbers |= {group[2] for group in notes["held"] if held and group[:2] == [rank, life]}
            found[SERVER if rank == OWN else rank, life] = came, numbers
    return found


def _judged(groups: Sequence[Batches], came: int, taken: set[int], width: int) -> Iterator[list[int]]:
    """Yield the runs of *groups*; the server knows *came* of them, and took those in *taken*."""
    missing = came - sum(fate is Fate.HANDED_IN for _, _, fate in groups)
    number = end = 0
    for first, wide, fate in groups:
        if fate is Fate.IN_HAND and missing > 0:
            continue  # handed in after its rank's last report
        if fate is Fate.HANDED_IN:
            fate, number, width = Fate(number in taken), number + 1, wide
        yield [first, 1, wide, int(fate)]
        end = first + wide
    for late in range(max(missing, 0)):
        yield [end + late * width, 1, width, int(number + late in taken)]
