"""The fates of the batches that a rank has drawn: in the weights, lost, or handed in to a server.

A batch's number determines its samples: see `simcluster.runs.samples`. `simcluster.workloads.progress.ledgers`
reads the ledgers of all ranks together.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from simcluster.payload import Message

OWN = -1
"""The value that stands for the rank that keeps the ledger, in place of that rank's number."""


class Fate(IntEnum):
    """The fate of a group of batches: lost, used in the weights, handed in to a server, or still in
    hand at the end of the run.
    """

    LOST = 0
    USED = 1
    HANDED_IN = 2
    IN_HAND = 3


class BatchGroup(NamedTuple):
    """The *number*-th group that *rank* handed in during its life *incarnation*."""

    rank: int
    incarnation: int
    number: int


class Ledger:
    """A rank's record of its batches. *runs* lists [first batch, number of groups, batches per
    group, fate], in the order of settling.

    A group consists of the batches that an algorithm settles at once: those of a step or a round.
    On a server, *came* counts the groups that each (rank, incarnation) has handed in, and *taken*
    lists the groups that were applied as [first group, number of groups]. All other groups are
    lost, but groups in *held* only if the run ends before they are taken. *incarnation* is that of
    this rank. *in_step*: whether every rank that has ended a step has all ranks' batches of that
    step in its weights. *place* is [number of the regrouped set, rank, size] if samples are dealt
    to a regrouped set of ranks; *earlier* has the notes of the sets before it. *drawn* is the
    number of the first batch not yet drawn, *settled* the number of the first batch in hand.
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
        """Start drawing at batch *first*. *joined*: whether each batch joins the batches of all
        ranks.
        """
        self.settled = self.drawn = first
        self.joined = joined

    def draw(self, number: int) -> None:
        """Note that this rank has drawn batch *number*."""
        self.drawn = number + 1

    def settle(self, end: int, *, used: bool = True) -> None:
        """Settle the batches in hand before number *end* as one more group, which is either *used*
        in the weights or lost.
        """
        self._asked = True
        self._note(min(end, self.drawn), Fate.USED if used else Fate.LOST)

    def hand_in(self, end: int) -> BatchGroup:
        """Hand in the batches in hand before number *end* as one more group, which is lost unless
        the server takes it. Return the group.
        """
        self._asked = True
        self._note(min(end, self.drawn), Fate.HANDED_IN)
        return self._next(OWN, self.incarnation)

    def receive(self, push: Message) -> BatchGroup:
        """Count *push* as the next group of its sender, and return the group. This is the server's
        side of `hand_in`.
        """
        return self._next(push.source, push.incarnation)

    def hold(self, group: BatchGroup) -> None:
        """Note that the server holds *group*, which its checkpoints keep, until it is taken."""
        self.held.append(group)

    def take(self, groups: Iterable[BatchGroup]) -> None:
        """Note that *groups* are now in the weights."""
        groups = list(groups)
        self.held = [group for group in self.held if group not in groups]
        for rank, incarnation, number in groups:
            runs = self.taken.setdefault((rank, incarnation), [])
            if runs and sum(runs[-1]) == number:
                runs[-1][1] += 1
            else:
                runs.append([number, 1])

    def end(self, *, well: bool) -> None:
        """Settle the remaining batches. They are used if this rank ended *well* and its algorithm
        never settled any batch; otherwise they are in hand.
        """
        self._note(self.drawn, Fate.USED if well and not self._asked else Fate.IN_HAND)

    def notes(self, *, in_hand: bool = False) -> dict[str, Any]:
        """Return the ledger as plain values. *in_hand*: whether to include the batches in hand; if
        so, the notes may not be final.
        """
        runs = [list(run) for run in self.runs]
        if in_hand and self.drawn > self.settled:
            runs.append([self.settled, 1, self.drawn - self.settled, int(Fate.IN_HAND)])
        came = dict(self.came)  # copied, since this may run in another thread
        judged = [
            [rank, life, number, [list(run) for run in self.taken.get((rank, life), ())]]
            for (rank, life), number in sorted(came.items())
        ]
        found: dict[str, Any] = {"runs": runs, "judged": judged, "incarnation": self.incarnation}
        found |= {"held": [list(group) for group in self.held], "joined": self.joined, "in_step": self.in_step}
        found |= {"partial": in_hand}
        return found | ({"place": list(self.place), "earlier": list(self.earlier)} if self.place else {})

    def follow(self, before: Ledger, place: list[int]) -> None:
        """Start at *place* after the ledger *before* has ended.

        The batches still in hand in *before* are lost.
        """
        own = before.notes(in_hand=True) | {"partial": False}
        self.place = place
        self.earlier = [*own.pop("earlier", []), own]
        self.runs = []

    def load(self, notes: dict[str, Any]) -> None:
        """Continue from *notes* with every group resolved: see
        `simcluster.workloads.progress.ledgers.closed`.
        """
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
    """The ledger of a rank that draws no samples. It notes nothing, and all groups are the same."""

    _GROUP = BatchGroup(OWN, 0, 0)

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
