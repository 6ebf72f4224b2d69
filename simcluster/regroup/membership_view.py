"""The membership as one rank sees it: which ranks died, are cut off from which, have ended, or ask to be let in; and
the choice of the next group from it: its members, and the step it continues from.

Pure: equal inputs give equal choices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from simcluster.errors import ENDED, PeerLost
from simcluster.fault_plans.kinds import is_cut
from simcluster.regroup.messages import CaptureName, Decision, Life, Proposal


class MembershipFacts:
    """The facts known to *rank* of *size*, all except `asking` of present lives. *count* rises with every new fact."""

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

    def let_in(self, members: Iterable[int], lives: Sequence[int]) -> None:
        """Note that *members* in these *lives*, the leader's, are in a group; a later life still asks."""
        for rank, incarnation in enumerate(lives):
            self.meet(rank, incarnation)
        self.asking -= {rank for rank in members if lives[rank] == self.lives[rank]}

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


def form(facts: MembershipFacts, members: Sequence[int]) -> tuple[list[int], dict[int, int]]:
    """Return (the ranks that form the next group; for each other living rank, the member it is cut off from).

    The leader comes first, *members* before ranks that ask to be let in, lower ranks before higher ones. Of two ranks
    that are cut off from each other the later one is excluded, so that they never continue side by side.
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
    """Return the leader's decision, from its own captures *held* and the *answers* of the others; None without
    captures.

    *number* and *members* are those of the group that ends.
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
    """Return (the last step that all ranks with captures have in common, the ranks that hold it); None without
    captures.

    If they have none in common, a group has continued without some of them: then take that group's last common step,
    and treat the others as having none.
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
