"""MPICH's fold, which reduces any number of ranks to a power of two: a surplus rank gives its
vector to a neighbour.

p = 2^f + rest. Of the first 2 rest ranks, each odd one folds into the even one before it. The remaining 2^f ranks have
the places 0, 1, ... in rank order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from simcluster.rounds import NO_RANK, WHOLE, Formula, Ranks, Rounds, where


class Places:
    """The places of *size* ranks: there are *count* = 2^*bits* places, and *rest* ranks are folded
    away.
    """

    def __init__(self, size: int) -> None:
        self.bits = size.bit_length() - 1
        self.count = 1 << self.bits
        self.rest = size - self.count

    def ranks_at(self, place: int) -> list[int]:
        """Return the rank at *place* and the surplus rank that folds into it, if there is one."""
        return [2 * place, 2 * place + 1] if place < self.rest else [place + self.rest]


def fold_rounds(
    inner: Rounds,
    places: Places,
    length: int,
    fold: Callable[[int], Sequence[Any]] | None = None,
    unfold: Callable[[int], Sequence[Any]] = lambda rank: [WHOLE],
) -> Rounds:
    """Return the rounds *inner* among places, preceded and followed by rounds for the surplus
    ranks.

    A surplus rank first sends its vector of *length* numbers, which the receiver adds; if *fold* is
    set, it sends the parts that *fold* returns instead. The surplus rank then tells the ranks that
    nothing folds into to start. Sends are eager: if they started earlier, their messages to a rank
    still receiving a fold would compete on its link. In the last round, the rank before a surplus
    rank sends that rank the parts that *unfold* returns.
    """
    if not places.rest:
        return inner
    folded = FoldedSchedule(inner, places, length, fold, unfold)
    return replace(
        inner,
        name=inner.name and ("fold", inner.name),
        count=folded.last + 1,
        to=folded.to,
        source=folded.source,
        elements=folded.elements,
        suffix=folded.suffix,
        tensors=lambda number: 0 if 0 < number < folded.first else 1,
        parts=folded.parts,
        adds=folded.adds,
    )


@dataclass(frozen=True, eq=False)
class FoldedSchedule:
    """The formulas of `fold_rounds`.

    Round 0 folds. In the other rounds before round *first*, ranks that nothing folds into get start
    messages. Round *last* unfolds.
    """

    inner: Rounds
    places: Places
    length: int
    fold: Callable[[int], Sequence[Any]] | None
    unfold: Callable[[int], Sequence[Any]]
    first: int = field(init=False)
    last: int = field(init=False)

    def __post_init__(self) -> None:
        rest = self.places.rest
        first = 2 + (self.places.count - rest - 1) // rest
        object.__setattr__(self, "first", first)
        object.__setattr__(self, "last", first + self.inner.count)

    def to(self, number: int, rank: Ranks) -> Ranks:
        rest, place = self.places.rest, self._place_at(rank)
        if self._is_inside(number):
            return where(place < 0, NO_RANK, self._rank_at(self._inside(self.inner.to, number, rank)))
        if number == 0:
            return where(place < 0, rank - 1, NO_RANK)
        if number == self.last:
            return where((place < 0) | (place >= rest), NO_RANK, rank + 1)
        started = number * rest + rank // 2
        return where((place < 0) & (started < self.places.count), self._rank_at(started), NO_RANK)

    def source(self, number: int, rank: Ranks) -> Ranks:
        rest, place = self.places.rest, self._place_at(rank)
        if self._is_inside(number):
            return where(place < 0, NO_RANK, self._rank_at(self._inside(self.inner.source, number, rank)))
        if number == 0:
            return where((place >= 0) & (place < rest), rank + 1, NO_RANK)
        if number == self.last:
            return where(place < 0, rank - 1, NO_RANK)
        return where(place // rest == number, 2 * (place % rest) + 1, NO_RANK)

    def elements(self, number: int, rank: Ranks) -> Ranks:
        return self._inside(self.inner.elements, number, rank) if self._is_inside(number) else self.length

    def parts(self, number: int, rank: int) -> Sequence[Any]:
        if self._is_inside(number):
            return self.inner.parts(number - self.first, self._place_at(rank))
        if number == 0:
            return [WHOLE] if self.fold is None else self.fold(rank)
        return self.unfold(rank) if number == self.last else []

    def adds(self, number: int) -> bool:
        if self._is_inside(number):
            return self.inner.adds(number - self.first)
        return number == 0 and self.fold is None

    def suffix(self, number: int) -> str:
        if self._is_inside(number):
            return self.inner.suffix(number - self.first)
        return {0: "/fold", self.last: "/unfold"}.get(number, "/go")

    def _is_inside(self, number: int) -> bool:
        return self.first <= number < self.last

    def _inside(self, formula: Formula, number: int, rank: Ranks) -> Ranks:
        """Return the value of *formula* for the place of *rank*. If the rank is folded away, the
        value is arbitrary.
        """
        place = self._place_at(rank)
        return formula(number - self.first, where(place < 0, 0, place))

    def _place_at(self, rank: Ranks) -> Ranks:
        rest = self.places.rest
        return where(rank >= 2 * rest, rank - rest, where(rank % 2, NO_RANK, rank // 2))

    def _rank_at(self, place: Ranks) -> Ranks:
        rest = self.places.rest
        return where(place < rest, 2 * place, place + rest)
