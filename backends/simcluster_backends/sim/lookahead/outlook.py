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
"""The maximum number of outlooks in the cache."""

SAMPLED = 64
"""The maximum number of rounds in which messages are counted; longer schedules are sampled."""


class FirstActs(NamedTuple):
    """The first act of each rank: it *waits* for a message, or it sends one that *takes_time*."""

    waits: NDArray[np.bool_]
    takes_time: NDArray[np.bool_]


class Outlook(NamedTuple):
    """The first acts of ranks in a schedule, and the average number of *messages* per round."""

    firsts: FirstActs
    messages: float


class Outlooks:
    """A cache of the outlooks of schedules. When it is full (MOST), it is emptied."""

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
    """Return the first act of each of *size* ranks in *rounds*, from round *begin* on."""
    ranks = np.arange(size)
    idle = np.ones(size, dtype=np.bool_)
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
    """Return the average number of messages per round of *rounds* among *size* ranks."""
    if rounds.is_constant:
        return size
    ranks = np.arange(size)
    numbers = range(0, rounds.count, 1 + rounds.count // SAMPLED)
    return sum(np.count_nonzero(rounds.to(number, ranks) != NO_RANK) for number in numbers) / max(1, len(numbers))
