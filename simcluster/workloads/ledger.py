"""Fates of the batches that one rank has drawn, noted where they are decided: in the weights, lost, with a server.

Which samples a batch has follows from its number: see `simcluster.runs.samples`. What the ledgers of all ranks say
together: `simcluster.workloads.books`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from simcluster.payload import Message

OWN: Final = -1
"""In place of a rank: the one whose ledger it is."""


class Fate(IntEnum):
    """The end of a group of batches: lost, used in the weights, handed in to a server that judges it, or in hand
    when its rank ended.
    """

    LOST = 0
    USED = 1
    HANDED_IN = 2
    IN_HAND = 3


class Group(NamedTuple):
    """Of the groups that *rank* has handed in during its life *incarnation*, the one of this *number*."""

    rank: int
    incarnation: int
    number: int


class Ledger:
    """*runs* are [first batch, groups, batches a group, fate], in the order in which they were settled.

    A group is what an algorithm settles at once: a step, or a round. A server has in *came* how many groups each life
    of a rank has handed in, by (rank, incarnation), and in *taken* [first group, groups] of those that it has applied.
    All others are lost; *held* ones only if the run ends before they are taken. *incarnation* is the rank's own.
    *in_step*: every rank's batches of a step are in the weights of all that have ended it. *place* is [number of the
    group, rank, size] if samples are dealt out as in a group of ranks that was formed again, and *earlier* has the
    notes of the groups before.
    """

    def __init__(self) -> None:
        self.runs: list[list[int]] = []
        self.place: list[int] = []
        self.earlier: list[dict[str, Any]] = []
        self.came: dict[tuple[int, int], int] = {}
        self.taken: dict[tuple[int, int], list[list[int]]] = {}
        self.held: list[Group] = []
        self.incarnation = 0
        self.joined = self.in_step = False
        self._settled = self._drawn = 0
        self._asked = False

    def begin(self, first: int, *, joined: bool = False) -> None:
        """Batches are drawn from number *first* on; *joined*: each is that of all ranks."""
        self._settled = self._drawn = first
        self.joined = joined

    def draw(self, number: int) -> None:
        """Batch *number* is in this rank's hands."""
        self._drawn = number + 1

    @property
    def drawn(self) -> int:
        """The batches of this pass that were drawn."""
        return self._drawn

    @property
    def settled(self) -> int:
        """Those of them that are no longer in hand."""
        return self._settled

    def settle(self, end: int, *, used: bool = True) -> None:
        """The batches in hand before number *end* are one more group: in the weights, or lost."""
        self._asked = True
        self._note(min(end, self._drawn), Fate.USED if used else Fate.LOST)

    def hand_in(self, end: int) -> Group:
        """The batches in hand before number *end* are one more group that a server judges: it is lost unless taken."""
        self._asked = True
        self._note(min(end, self._drawn), Fate.HANDED_IN)
        return self._next(OWN, self.incarnation)

    def receive(self, push: Message) -> Group:
        """A server's side of `hand_in`: *push* brings the next group of its sender."""
        return self._next(push.source, push.incarnation)

    def hold(self, group: Group) -> None:
        """*group* is kept with the server's checkpoints, and will be taken."""
        self.held.append(group)

    def take(self, groups: Iterable[Group]) -> None:
        """*groups* are in the weights now."""
        groups = list(groups)
        self.held = [group for group in self.held if group not in groups]
        for rank, incarnation, number in groups:
            runs = self.taken.setdefault((rank, incarnation), [])
            if runs and sum(runs[-1]) == number:
                runs[-1][1] += 1
            else:
                runs.append([number, 1])

    def end(self, *, well: bool) -> None:
        """What is still in hand is lost, unless this rank ended *well* and never said anything of its batches."""
        self._note(self._drawn, Fate.USED if well and not self._asked else Fate.IN_HAND)

    def notes(self, *, in_hand: bool = False) -> dict[str, Any]:
        """All of it as plain values. *in_hand*: with the batches in hand, and as words that may not be the last."""
        runs = [list(run) for run in self.runs]
        if in_hand and self._drawn > self._settled:
            runs.append([self._settled, 1, self._drawn - self._settled, int(Fate.IN_HAND)])
        came = dict(self.came)  # another thread may ask
        judged = [
            [rank, life, number, [list(run) for run in self.taken.get((rank, life), ())]]
            for (rank, life), number in sorted(came.items())
        ]
        found: dict[str, Any] = {"runs": runs, "judged": judged, "incarnation": self.incarnation}
        found |= {
            "held": [list(group) for group in self.held],
            "joined": self.joined,
            "in_step": self.in_step,
            "partial": in_hand,
        }
        return found | ({"place": list(self.place), "earlier": list(self.earlier)} if self.place else {})

    def follow(self, before: Ledger, place: list[int]) -> None:
        """Begins at *place*, where *before* ends: what was in hand there is lost."""
        own = before.notes(in_hand=True) | {"partial": False}
        self.place, self.earlier, self.runs = place, [*own.pop("earlier", []), own], []

    def load(self, notes: dict[str, Any]) -> None:
        """Continue from *notes*, in which everything is judged: see `simcluster.workloads.books.closed`."""
        self.runs = [list(run) for run in notes["runs"]]
        self.joined = bool(notes["joined"])
        self.place, self.earlier = list(notes.get("place", [])), list(notes.get("earlier", []))

    def _next(self, rank: int, incarnation: int) -> Group:
        number = self.came.get((rank, incarnation), 0)
        self.came[rank, incarnation] = number + 1
        return Group(rank, incarnation, number)

    def _note(self, end: int, fate: Fate) -> None:
        first, width = self._settled, end - self._settled
        if width <= 0:
            return
        self._settled = end
        last = self.runs[-1] if self.runs else [0, 0, 0, 0]
        if last[2:] == [width, int(fate)] and last[0] + last[1] * width == first:
            last[1] += 1
        else:
            self.runs.append([first, 1, width, int(fate)])
