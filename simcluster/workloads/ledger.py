"""What became of the batches that one rank has drawn: which are in the weights, which were lost, in its own order.

This file knows numbers of batches. It must not know samples, messages or time. Which samples a batch has follows from
its number: see `simcluster.results.samples`.
"""

from __future__ import annotations

from typing import Any


class Ledger:
    """*runs* are [first batch, groups, batches a group, 1 if used else 0], in the order in which they were settled.

    A group is what an algorithm settles at once: a step, or a round. Of a server *judged* says what became of others'
    groups: rank -> of each of its lives (how many have come, the numbers of those that it did not take). *held* is
    whether the last group was still in hand at the end: whoever sent it and died before the answer knows no more of it;
    a server does. *again* are [rank, first group,
    groups] of others that a server has taken and that are trained on once more, as a resumed run may.
    *place* is [number of the group, rank, size] if samples are dealt out as in a group that was formed anew, and
    *earlier* has the notes of the groups before.
    """

    def __init__(self) -> None:
        self.runs: list[list[int]] = []
        self.place: list[int] = []
        self.earlier: list[dict[str, Any]] = []
        self.judged: dict[int, list[tuple[int, list[int]]]] = {}
        self.again: list[list[int]] = []
        self.joined = self.held = False
        self._settled = self._drawn = 0
        self._asked = False
        self._parted: set[int] = set()  # of whom nothing has come since; only asked whether somebody is in it

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
        self._note(min(end, self._drawn), used)

    def judge(self, rank: int, used: bool) -> None:
        """The next group of *rank* has come here, and was taken or not."""
        self._parted.discard(rank)
        lives = self.judged.setdefault(rank, [(0, [])])
        come, rejected = lives[-1]
        if not used:
            rejected.append(come)
        lives[-1] = come + 1, rejected

    def parted(self, rank: int) -> None:
        """*rank* is lost, which may be said twice: what comes from now on is of another life, and counted anew."""
        if rank not in self._parted:
            self._parted.add(rank)
            self.judged.setdefault(rank, [(0, [])]).append((0, []))

    def end(self, *, well: bool) -> None:
        """What is still in hand is lost, unless this rank ended *well* and never said anything of its batches."""
        used = well and not self._asked
        self.held = self.held or (self._drawn > self._settled and not used)
        self._note(self._drawn, used)

    def notes(self, *, in_hand: bool = False) -> dict[str, Any]:
        """All of it as plain values; what is *in_hand* as lost, or not at all."""
        lives = {rank: list(of_rank) for rank, of_rank in dict(self.judged).items()}  # others' thread may ask
        judged = [[rank, come, list(rejected)] for rank in sorted(lives) for come, rejected in lives[rank]]
        runs = [list(run) for run in self.runs]
        if in_hand and self._drawn > self._settled:
            runs.append([self._settled, 1, self._drawn - self._settled, 0])
        held = self.held or len(runs) > len(self.runs)
        again = [list(part) for part in self.again]
        found: dict[str, Any] = {"runs": runs, "judged": judged, "again": again, "joined": self.joined, "held": held}
        return found | ({"place": list(self.place), "earlier": list(self.earlier)} if self.place else {})

    def follow(self, before: Ledger, place: list[int]) -> None:
        """Begins at *place*, where *before* ends: what was in hand there is lost."""
        own = before.notes(in_hand=True)
        self.place, self.earlier, self.runs = place, [*own.pop("earlier", []), own], []

    def load(self, notes: dict[str, Any]) -> None:
        """Goes on from *notes*."""
        self.runs = [list(run) for run in notes["runs"]]
        self.judged = {}
        for rank, come, rejected in notes["judged"]:
            self.judged.setdefault(rank, []).append((come, list(rejected)))
        self.again = [list(part) for part in notes["again"]]
        self.joined = bool(notes["joined"])
        self.place, self.earlier = list(notes.get("place", [])), list(notes.get("earlier", []))

    def _note(self, end: int, used: bool) -> None:
        first, width = self._settled, end - self._settled
        if width <= 0:
            return
        self._settled = end
        last = self.runs[-1] if self.runs else [0, 0, 0, 0]
        if last[2:] == [width, int(used)] and last[0] + last[1] * width == first:
            last[1] += 1
        else:
            self.runs.append([first, 1, width, int(used)])
