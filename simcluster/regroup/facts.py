"""Who is there, as far as one rank knows: who died, who is cut off from whom, who has ended, who asks to be let in.

This file knows ranks and lives. Pure: it must not know messages, or what is made of the facts.
"""

from __future__ import annotations

from collections.abc import Iterable

from simcluster.errors import ENDED
from simcluster.experiment.fault_kinds import is_cut
from simcluster.regroup.words import Life


class Facts:
    """What *rank* of *size* knows. *count* rises with every new fact. All but `asking` is of present lives."""

    def __init__(self, rank: int, size: int, incarnation: int = 0) -> None:
        self.rank = rank
        self.lives = [0] * size
        self.lives[rank] = incarnation
        self.reasons: dict[int, str] = {}
        self.finished: set[int] = set()
        self.asking: set[int] = set()
        self.count = 0
        self._dead: set[Life] = set()
        self._cuts: set[tuple[Life, Life]] = set()

    def lose(self, rank: int, reason: str) -> bool:
        """This rank has lost *rank*; True if that is news. Who is cut off may live on, and think the same of us."""
        if reason == ENDED:
            return self._note(self.finished, rank)
        self.reasons[rank] = reason
        if is_cut(reason):
            return self._note(self._cuts, self._pair(self.rank, rank))
        return self._note(self._dead, self._life(rank))

    def merge(self, dead: Iterable[Life], cuts: Iterable[tuple[Life, Life]]) -> bool:
        """Another rank knows this; True if any of it is news."""
        before = self.count
        for rank, incarnation in dead:
            self._note(self._dead, (rank, incarnation))
        for one, other in cuts:
            self._note(self._cuts, ((one[0], one[1]), (other[0], other[1])))
        return self.count > before

    def comes(self, rank: int, incarnation: int) -> bool:
        """*rank* asks to be let in, in another life."""
        self.lives[rank] = incarnation
        self.finished.discard(rank)
        return self._note(self.asking, rank)

    def learn(self, lives: Iterable[int]) -> None:
        """These are everybody's lives, as who leads knows them."""
        self.lives = [max(known, told) for known, told in zip(self.lives, lives, strict=True)]

    def is_dead(self, rank: int) -> bool:
        return self._life(rank) in self._dead

    def parted(self, one: int, other: int) -> bool:
        """Whether they are cut off from each other."""
        return self._pair(one, other) in self._cuts

    def is_lost(self, rank: int) -> bool:
        """To this one, at least."""
        return self.is_dead(rank) or self.parted(self.rank, rank)

    @property
    def dead(self) -> list[Life]:
        return sorted(self._dead)

    @property
    def cuts(self) -> list[tuple[Life, Life]]:
        return sorted(self._cuts)

    def _life(self, rank: int) -> Life:
        return rank, self.lives[rank]

    def _pair(self, one: int, other: int) -> tuple[Life, Life]:
        return self._life(min(one, other)), self._life(max(one, other))

    def _note(self, known: set, fact: object) -> bool:  # type: ignore[type-arg]
        if fact in known:
            return False
        known.add(fact)
        self.count += 1
        return True
