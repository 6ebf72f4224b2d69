"""The first act of each rank in a schedule: to send or to wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simcluster.rounds import NO_RANK
from simcluster_backends.sim.lookahead.sizes import bodies_B

if TYPE_CHECKING:
    from simcluster.rounds import Rounds


class Firsts(NamedTuple):
    """By rank: whether it *waits* for a message before it sends one, or its first message *takes time* to leave."""

    waits: NDArray[np.bool_]
    takes_time: NDArray[np.bool_]


class LastFirsts:
    """The firsts of the schedule that was asked for last."""

    def __init__(self) -> None:
        self._of: object = None
        self._firsts: Firsts | None = None

    def of(self, rounds: Rounds, size: int) -> Firsts:
        """Return what each of *size* ranks does first in *rounds*."""
        key = rounds.name, rounds.count, rounds.vector.dtype, size
        if self._firsts is None or self._of != key:
            self._of, self._firsts = key, firsts_of(rounds, size)
        return self._firsts


def firsts_of(rounds: Rounds, size: int, begin: int = 0) -> Firsts:
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
    return Firsts(waits, takes_time)
