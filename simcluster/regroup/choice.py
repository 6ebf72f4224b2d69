"""The choice of the next group: its members, and the step it continues from.

Pure: equal inputs give equal choices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simcluster.regroup.membership_view import Facts
from simcluster.regroup.messages import Decision, Held, Propose


def form(facts: Facts, members: Sequence[int]) -> tuple[list[int], dict[int, int]]:
    """Return (the ranks that form the next group; for each other living rank, the member it is cut off from).

    The leader comes first, *members* before ranks that ask to be let in, lower ranks before higher ones. Of two ranks
    that are cut off from each other the later one is excluded, so that they never continue side by side.
    """
    asking = sorted(facts.asking)
    order = [facts.rank, *sorted(rank for rank in members if rank not in facts.asking), *asking]
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
    facts: Facts, number: int, members: Sequence[int], held: Sequence[Held], answers: Mapping[int, Propose]
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


def newest(held: Mapping[int, Sequence[Held]]) -> tuple[Held, list[int]] | None:
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
