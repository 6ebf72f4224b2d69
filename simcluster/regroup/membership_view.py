"""The membership as one rank sees it: which ranks died, are cut off from which, have ended, or ask to be let in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from simcluster.errors import ENDED, PeerLost
from simcluster.fault_plans.kinds import is_cut
from simcluster.regroup.messages import Life


class Facts:
    """The facts known to *rank* of *size*. *count* rises with every new fact. All except `asking` concerns present
    lives.
    """

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

    def lose(self, rank: int, reason: str, incarnation: int) -> bool:
        """Note that this rank has lost *rank* in its life *incarnation*; return whether that is news.

        A rank that is cut off may be alive, and think the same of this one. The loss of a past life, which another rank
        may have reported first, does not affect the present one.
        """
        if incarnation < self.lives[rank]:
            return False
        self.meet(rank, incarnation)
        if reason == ENDED:
            return self._note(self.finished, rank)
        self.reasons[rank] = reason
        if is_cut(reason):
            return self._note(self._cuts, self._pair(self.rank, rank))
        return self._note(self._dead, self.life(rank))

    def merge(self, dead: Iterable[Life], cuts: Iterable[tuple[Life, Life]]) -> bool:
        """Add another rank's facts; return whether any is news."""
        before = self.count
        for rank, incarnation in dead:
            self.meet(rank, incarnation)
            self._note(self._dead, (rank, incarnation))
        for one, other in cuts:
            self._note(self._cuts, ((one[0], one[1]), (other[0], other[1])))
        return self.count > before

    def comes(self, rank: int, incarnation: int) -> bool:
        """Note that *rank*, in its life *incarnation*, asks to be admitted; return whether that is new."""
        if incarnation < self.lives[rank]:
            return False
        return self.meet(rank, incarnation) | self._note(self.asking, rank)

    def learn(self, lives: Iterable[int]) -> None:
        """Adopt the *lives* known to the leader, where they are later."""
        for rank, incarnation in enumerate(lives):
            self.meet(rank, incarnation)

    def let_in(self, members: Iterable[int], lives: Sequence[int]) -> None:
        """Note that *members* in these *lives* are in a group; a later life still asks."""
        self.learn(lives)
        self.asking -= {rank for rank in members if lives[rank] == self.lives[rank]}

    def are_over(self, members: Iterable[int], lives: Sequence[int]) -> bool:
        """Return whether any of *members* in these *lives* is over, or out of reach."""
        return any(lives[rank] < self.lives[rank] or self.is_lost(rank) for rank in members)

    def is_past(self, rank: int, incarnation: int) -> bool:
        """Return whether that life of *rank* is known to be over, because another one has followed."""
        return incarnation < self.lives[rank]

    def life(self, rank: int) -> Life:
        """Return the present life of *rank*, as far as known."""
        return rank, self.lives[rank]

    def is_dead(self, rank: int) -> bool:
        return self.life(rank) in self._dead

    def parted(self, one: int, other: int) -> bool:
        """Return whether the two are cut off from each other."""
        return self._pair(one, other) in self._cuts

    def is_lost(self, rank: int) -> bool:
        """Return whether *rank* is dead or cut off from this one."""
        return self.is_dead(rank) or self.parted(self.rank, rank)

    @property
    def dead(self) -> list[Life]:
        return sorted(self._dead)

    @property
    def cuts(self) -> list[tuple[Life, Life]]:
        return sorted(self._cuts)

    def meet(self, rank: int, incarnation: int) -> bool:
        """Note that *rank* has had the life *incarnation*; return whether it is later than those known."""
        if incarnation <= self.lives[rank]:
            return False
        self.lives[rank] = incarnation
        self.finished.discard(rank)
        if rank in self.asking:
            self.count += 1
        return True

    def _pair(self, one: int, other: int) -> tuple[Life, Life]:
        return self.life(min(one, other)), self.life(max(one, other))

    def _note(self, known: set, fact: object) -> bool:  # type: ignore[type-arg]
        if fact in known:
            return False
        known.add(fact)
        self.count += 1
        return True


def has_raised(reason: str) -> bool:
    """Whether a peer failed because its code raised, other than for the loss of another peer."""
    return reason.startswith("failed: ") and not reason.startswith(f"failed: {PeerLost.__name__}")


def step_of_leave(reason: str) -> int | None:
    """Return the step in "left at step 7"."""
    words = reason.rpartition("left at step ")
    return int(words[2]) if words[1] and words[2].isdigit() else None
