"""The fates of the batches that a rank drew: in the weights, lost, or handed in to a server.

A batch's number determines its samples: see `simcluster.runs.samples`. `simcluster.workloads.progress.books` reads the
ledgers of all ranks together.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from simcluster.payload import Message

OWN: Final = -1
"""In place of a rank: the rank that keeps the ledger."""


class Fate(IntEnum):
    """The fate of a group of batches: lost, in the weights, with a server that decides, or in hand at the end."""

    LOST = 0
    USED = 1
    HANDED_IN = 2
    IN_HAND = 3


class BatchGroup(NamedTuple):
    """Group *number* among those that *rank* handed in during its life *incarnation*."""

    rank: int
    incarnation: int
    number: int


class Ledger:
    """A rank's record of its batches: *runs* are [first batch, groups, batches per group, fate], in settling order.

    A group is what an algorithm settles at once: a step or a round. On a server, *came* counts the groups that each
    (rank, incarnation) handed in, and *taken* lists the applied ones as [first group, groups]. All others are lost;
    *held* ones only if the run ends before they are taken. *incarnation* is this rank's. *in_step*: all ranks that have
    ended a step have every rank's batches of it in their weights. *place* is [number of the group, rank, size] if
    samples are dealt out to a regrouped set of ranks; *earlier* has the notes of the groups before it. *drawn* is the
    number of the first batch not yet drawn, *settled* that of the first batch still in hand.
    """

    def __init__(self) -> None:
        self.runs: list[list[int]] = []
        self.place: list[int] = []
        self.earlier: list[dict[str, Any]] = []
        self.came: dict[tuple[int, int], int] = {}
        self.taken: dict[tuple[int, int], list[list[int]]] = {}
        self.held: list[BatchGroup] = []
        self.incarnation = 0
        self.joined = self.in_step = False
        self.settled = self.drawn = 0
        self._asked = False

    def begin(self, first: int, *, joined: bool = False) -> None:
        """Start drawing at batch *first*; *joined*: each batch is that of all ranks."""
        self.settled = self.drawn = first
        self.joined = joined

    def draw(self, number: int) -> None:
        """Note that batch *number* is in this rank's hands."""
        self.drawn = number + 1

    def settle(self, end: int, *, used: bool = True) -> None:
        """Settle the batches in hand before number *end* as one more group: used in the weights, or lost."""
        self._asked = True
        self._note(min(end, self.drawn), Fate.USED if used else Fate.LOST)

    def hand_in(self, end: int) -> BatchGroup:
        """Hand in the batches before number *end* as one more group: lost unless the server takes it."""
        self._asked = True
        self._note(min(end, self.drawn), Fate.HANDED_IN)
        return self._next(OWN, self.incarnation)

    def receive(self, push: Message) -> BatchGroup:
        """Count *push* as the next group of its sender: the server's side of `hand_in`."""
        return self._next(push.source, push.incarnation)

    def hold(self, group: BatchGroup) -> None:
        """Note that *group* is kept with the server's checkpoints and will be taken."""
        self.held.append(group)

    def take(self, groups: Iterable[BatchGroup]) -> None:
        """Note that *groups* are in the weights now."""
        groups = list(groups)
        self.held = [group for group in self.held if group not in groups]
        for rank, incarnation, number in groups:
            runs = self.taken.setdefault((rank, incarnation), [])
            if runs and sum(runs[-1]) == number:
                runs[-1][1] += 1
            else:
                runs.append([number, 1])

    def end(self, *, well: bool) -> None:
        """Settle the rest: used if this rank ended *well* and never settled anything itself, else still in hand."""
        self._note(self.drawn, Fate.USED if well and not self._asked else Fate.IN_HAND)

    def notes(self, *, in_hand: bool = False) -> dict[str, Any]:
        """Return the ledger as plain values. *in_hand*: include the batches in hand; the notes may not be final."""
        runs = [list(run) for run in self.runs]
        if in_hand and self.drawn > self.settled:
            runs.append([self.settled, 1, self.drawn - self.settled, int(Fate.IN_HAND)])
        came = dict(self.came)  # may be called from another thread
        judged = [
            [rank, life, number, [list(run) for run in self.taken.get((rank, life), ())]]
            for (rank, life), number in sorted(came.items())
        ]
        found: dict[str, Any] = {"runs": runs, "judged": judged, "incarnation": self.incarnation}
        found |= {"held": [list(group) for group in self.held], "joined": self.joined, "in_step": self.in_step}
        found |= {"partial": in_hand}
        return found | ({"place": list(self.place), "earlier": list(self.earlier)} if self.place else {})

    def follow(self, before: Ledger, place: list[int]) -> None:
        """Start at *place*, after *before* has ended; batches still in hand there are lost."""
        own = before.notes(in_hand=True) | {"partial": False}
        self.place, self.earlier, self.runs = place, [*own.pop("earlier", []), own], []

    def load(self, notes: dict[str, Any]) -> None:
        """Continue from *notes*, with every group resolved: see `simcluster.workloads.progress.books.closed`."""
        self.runs = [list(run) for run in notes["runs"]]
        self.joined = bool(notes["joined"])
        self.place, self.earlier = list(notes.get("place", [])), list(notes.get("earlier", []))

    def _next(self, rank: int, incarnation: int) -> BatchGroup:
        number = self.came.get((rank, incarnation), 0)
        self.came[rank, incarnation] = number + 1
        return BatchGroup(rank, incarnation, number)

    def _note(self, end: int, fate: Fate) -> None:
        first, width = self.settled, end - self.settled
        if width <= 0:
            return
        self.settled = end
        last = self.runs[-1] if self.runs else [0, 0, 0, 0]
        if last[2:] == [width, int(fate)] and last[0] + last[1] * width == first:
            last[1] += 1
        else:
            self.runs.append([first, 1, width, int(fate)])


class UnkeptLedger(Ledger):
    """The ledger of a rank that draws no samples: it notes nothing, and each group is the same."""

    _GROUP: Final = BatchGroup(OWN, 0, 0)

    def settle(self, end: int, *, used: bool = True) -> None:
        pass

    def hand_in(self, end: int) -> BatchGroup:
        return self._GROUP

    def receive(self, push: Message) -> BatchGroup:
        return self._GROUP

    def hold(self, group: BatchGroup) -> None:
        pass

    def take(self, groups: Iterable[BatchGroup]) -> None:
        pass
