"""The membership as one rank sees it, and the choice of the next group.

The view records the ranks that died, are cut off from each other, have ended, or ask to be let in.
The choice of the next group's members and of its first capture is a pure function: equal inputs
give equal choices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from simcluster.errors import ENDED, PeerLost
from simcluster.fault_plans.kinds import is_cut
from simcluster.regroup.messages import CaptureName, Decision, Life, Proposal


class MembershipFacts:
    """The facts that *rank* knows about the present lives of all *size* ranks.

    *count* increases with every new fact.
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
        """Note that this rank has lost *rank* in its life *incarnation*. Return whether that is
        new.

        A rank that is cut off may be alive, and may consider this rank cut off. The loss of a past
        life, which another rank may have reported first, does not affect the present life.
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
        """Add the deaths and the cut links that another rank knows. Return whether any of them is
        new.
        """
        before = self.count
        for rank, incarnation in dead:
            self.meet(rank, incarnation)
            self._note(self._dead, (rank, incarnation))
        for one, other in cuts:
            self._note(self._cuts, ((one[0], one[1]), (other[0], other[1])))
        return self.count > before

    def comes(self, rank: int, incarnation: int) -> bool:
        """Note that *rank*, in its life *incarnation*, asks to be let in. Return whether that is
        new.
        """
        if incarnation < self.lives[rank]:
            return False
        return self.meet(rank, incarnation) | self._note(self.asking, rank)

    def let_in(self, members: Iterable[int], lives: Sequence[int]) -> None:
        """Note that *members* are in a group, with *lives* by rank as the group's leader knows
        them.

        A member with a later life still asks to be let in.
        """
        for rank, incarnation in enumerate(lives):
            self.meet(rank, incarnation)
        self.asking -= {rank for rank in members if lives[rank] == self.lives[rank]}

    def is_past(self, rank: int, incarnation: int) -> bool:
        """Return whether this rank knows a life of *rank* that is later than *incarnation*."""
        return incarnation < self.lives[rank]

    def life(self, rank: int) -> Life:
        """Return the latest known life of *rank*."""
        return rank, self.lives[rank]

    def is_dead(self, rank: int) -> bool:
        return self.life(rank) in self._dead

    def parted(self, one: int, other: int) -> bool:
        """Return whether the ranks *one* and *other* are cut off from each other."""
        return self._pair(one, other) in self._cuts

    def is_lost(self, rank: int) -> bool:
        """Return whether *rank* is dead or cut off from this rank."""
        return self.is_dead(rank) or self.parted(self.rank, rank)

    @property
    def dead(self) -> list[Life]:
        return sorted(self._dead)

    @property
    def cuts(self) -> list[tuple[Life, Life]]:
        return sorted(self._cuts)

    def meet(self, rank: int, incarnation: int) -> bool:
        """Note that *rank* is in its life *incarnation*. Return whether that life is later than the
        one known.
        """
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
    """Return whether *reason* says that a peer's code raised an error other than the loss of
    another peer.
    """
    return reason.startswith("failed: ") and not reason.startswith(f"failed: {PeerLost.__name__}")


def step_of_leave(reason: str) -> int | None:
    """Return the step after which a node left, such as 7 for a *reason* that ends in "left at step
    7".

    Return None for other reasons.
    """
    words = reason.rpartition("left at step ")
    return int(words[2]) if words[1] and words[2].isdigit() else None


def form(facts: MembershipFacts, members: Sequence[int]) -> tuple[list[int], dict[int, int]]:
    """Return (the ranks of the next group, excluded living rank -> the rank that it is cut off
    from).

    If two ranks are cut off from each other, only the first in this order is included, so the two
    never both continue: the leader, *members*, ranks that ask to be let in. Among members and among
    asking ranks, lower ranks come first.
    """
    order = [facts.rank, *sorted(set(members) - facts.asking), *sorted(facts.asking)]
    included: list[int] = []
    excluded: dict[int, int] = {}
    for rank in dict.fromkeys(order):
        if facts.is_dead(rank) or rank in facts.finished:
            continue
        parted = next((other for other in included if facts.parted(other, rank)), None)
        if parted is None:
            included.append(rank)
        else:
            excluded[rank] = parted
    return sorted(included), excluded


def decide(
    facts: MembershipFacts,
    number: int,
    members: Sequence[int],
    held: Sequence[CaptureName],
    answers: Mapping[int, Proposal],
) -> Decision | None:
    """Return the leader's decision, or None if no rank has a capture.

    *held* names the leader's captures, and *answers* has the other ranks' proposals. *number* and
    *members* describe the group that ends.
    """
    included, finished = sorted([facts.rank, *answers]), facts.finished
    found = newest({facts.rank: held, **{rank: answer.held for rank, answer in answers.items()}})
    if found is None:
        return None
    capture, holders = found
    return Decision(
        number=max([number, *(answer.number for answer in answers.values())]) + 1,
        leader=facts.rank,
        members=included,
        capture=capture,
        source=holders[0],
        receivers=[rank for rank in included if rank not in holders],
        lives=facts.lives,
        lost=[rank for rank in members if rank in facts.asking or rank not in (*included, *finished)],
        joined=[rank for rank in included if rank not in members or rank in facts.asking],
    )


def newest(held: Mapping[int, Sequence[CaptureName]]) -> tuple[CaptureName, list[int]] | None:
    """Return (the last capture that all ranks with captures have, the ranks that have it).

    Return None if there are no captures. If no capture is common to all, a group has continued
    without some of the ranks; then only the captures of the latest group count.
    """
    holders = {rank: set(names) for rank, names in held.items() if names}
    if not holders:
        return None
    common = set.intersection(*holders.values())
    if not common:
        last = max(name[:2] for names in holders.values() for name in names)
        holders = {rank: names for rank, names in holders.items() if any(name[:2] == last for name in names)}
        common = set.intersection(*holders.values()) or {max(name for names in holders.values() for name in names)}
    best = max(common)
    return best, sorted(rank for rank, names in holders.items() if best in names)
