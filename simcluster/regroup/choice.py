"""Who belongs to the next group, and from which step it goes on.

Pure: whoever has the same of both makes the same choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simcluster.regroup.membership_view import Facts
from simcluster.regroup.messages import Held


def form(facts: Facts, members: Sequence[int]) -> tuple[list[int], dict[int, int]]:
    """(those who belong together, of the others that live the one each is cut off from).

    Who leads comes first, *members* before those who ask to be let in, lower ranks before higher ones: of two that are
    cut off from each other the one that comes later is left out, so that they never go on side by side.
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


def newest(held: Mapping[int, Sequence[Held]]) -> tuple[Held, list[int]] | None:
    """(the last step that all hold who hold any, those that do hold it); None if nobody holds anything.

    If they have none in common, a group has gone on without some of them: then it is its last common step, and the
    others are as those who hold nothing.
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
