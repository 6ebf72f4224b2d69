"""The ledgers of all ranks, read together: what a rank handed in to a server is used or lost, as the server noted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from simcluster.workloads.ledger import OWN, Fate

SERVER: Final = 0
"""The rank that judges what others hand in."""

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
    """The notes of each rank, life by life, with every group that was handed in used or lost.

    *server*: those notes of rank 0 that judge, by default all. *held*: what the server held is used, too. If it
    received groups that their sender did not live to report, they are added, each as wide as the ones before it.
    """
    lives = [[{**notes, "judged": []} for notes in of_rank] for of_rank in ranks]
    verdicts = _verdicts(ranks[SERVER] if server is None else server, held) if ranks else {}
    for rank, life in verdicts:
        if not any(notes["incarnation"] == life for notes in lives[rank]):
            lives[rank].append(_unheard(life))
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


def _unheard(life: int) -> Notes:
    return {
        "runs": [],
        "judged": [],
        "held": [],
        "incarnation": life,
        "joined": False,
        "in_step": False,
        "partial": True,
    }


def _judged(groups: Sequence[Batches], came: int, taken: set[int], width: int) -> Iterator[list[int]]:
    """Runs of *groups*; *came* of them, and among these those *taken*, are known to the server."""
    missing = came - sum(fate is Fate.HANDED_IN for _, _, fate in groups)
    number = end = 0
    for first, wide, fate in groups:
        if fate is Fate.IN_HAND and missing > 0:
            continue  # it was handed in, behind its rank's last words
        if fate is Fate.HANDED_IN:
            fate, number, width = Fate(number in taken), number + 1, wide
        yield [first, 1, wide, int(fate)]
        end = first + wide
    for late in range(max(missing, 0)):
        yield [end + late * width, 1, width, int(number + late in taken)]
