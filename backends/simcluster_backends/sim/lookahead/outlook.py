"""A schedule before it begins: the first act of each rank, and the number of messages."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simcluster.rounds import NO_RANK
from simcluster_backends.sim.lookahead.sizes import bodies_B

if TYPE_CHECKING:
    from simcluster.rounds import Rounds

MOST = 32
"""The most outlooks that are kept."""

SAMPLED = 64
"""The most rounds whose messages are counted; of a longer schedule half as many or more, evenly spread."""


class FirstActs(NamedTuple):
    """By rank: whether it *waits* for a message before it sends one, or its first message *takes time* to leave."""

    waits: NDArray[np.bool_]
    takes_time: NDArray[np.bool_]


class Outlook(NamedTuple):
    """The first acts of the ranks of a schedule, and the messages of a round, on average."""

    firsts: FirstActs
    messages: float


class Outlooks:
    """The outlooks of schedules, each made once; after MOST of them all are forgotten."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Outlook] = {}

    def of(self, rounds: Rounds, size: int) -> Outlook:
        """Return the outlook of *rounds* among *size* ranks."""
        key = rounds.name, rounds.count, rounds.vector.dtype, size
        if (found := self._known.get(key)) is None:
            if len(self._known) == MOST:
                self._known.clear()
            found = self._known[key] = Outlook(firsts_of(rounds, size), messages_of(rounds, size))
        return found


def firsts_of(rounds: Rounds, size: int, begin: int = 0) -> FirstActs:
    """Return what each of *size* ranks does first in *rounds*, from number *begin* on."""
    ranks, idle = np.arange(size), np.ones(size, dtype=np.bool_)
    waits, takes_time = np.zeros(size, dtype=np.bool_), np.zeros(size, dtype=np.bool_)
    for number in range(begin, rounds.count):
        sends, receives = rounds.to(number, ranks) != NO_RANK, rounds.source(number, ranks) != NO_RANK
        waits |= idle & receives & ~sends
        takes_time |= idle & sends & (bodies_B(rounds, number, ranks) > 0)
        idle &= ~(sends | receives)
        if not idle.any():
            break
    return FirstActs(waits, takes_time)


def messages_of(rounds: Rounds, size: int) -> float:
    """Return how many messages a round of *rounds* has among *size* ranks, on average."""
    if rounds.is_constant:
        return size
    ranks, numbers = np.arange(size), range(0, rounds.count, 1 + rounds.count // SAMPLED)
    return sum(np.count_nonzero(rounds.to(number, ranks) != NO_RANK) for number in numbers) / max(1, len(numbers))
