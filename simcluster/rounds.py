"""A communication schedule in rounds: each rank sends and receives at most one message per round.

The same description serves messages with and without values; simcluster.collectives.exchange runs
it. It consists of formulas that take the number of a round, and one rank or an array of all ranks.
So a schedule for thousands of ranks needs no table, and a simulator can compute a round for all
ranks together.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from simcluster.payload import Payload

if TYPE_CHECKING:
    from torch import Tensor

NO_RANK = -1
"""The value in place of a rank that means: in this round, no message is sent, or none is
received.
"""

NOTHING = torch.empty(0, device="meta")
"""The placeholder for the vector of rounds that have none yet."""

WHOLE = (0, None)
"""The (start, end) of the slice that is a whole vector."""

Ranks = Any
"""A rank, or an array of all ranks in order."""

Formula = Callable[[int, Ranks], Any]
"""(number of a round, rank) -> a whole number.

For an array of ranks, the result is an array, or one number if it is the same for all ranks.
"""

Parts = Callable[[int, int], Sequence[Any]]
"""(number of a round, rank) -> the names of the parts that the rank sends."""

MOST_KEPT = 64
"""The maximum number of rounds of a schedule with cached steps. For longer schedules, ranks times
rounds would not fit in memory.
"""


class RankStep(NamedTuple):
    """The work of one rank in a round: it sends the parts *gives* to rank *to*, and receives the
    parts *takes* from rank *source*.
    """

    to: int
    source: int
    gives: Sequence[Any]
    takes: Sequence[Any]
    adds: bool
    suffix: str


@dataclass(frozen=True)
class Rounds:
    """A schedule of *count* rounds.

    In round k, rank r sends *elements(k, r)* numbers to rank *to(k, r)* under the tag *prefix* +
    *suffix(k)*, and receives from rank *source(k, r)*. Either rank may be NO_RANK, but at least one
    rank sends in each round.

    - *vector*: a message is one vector of this dtype, or *tensors(k)* vectors.
    - *name*: two schedules with the same name and dtype must be the same. Rounds without a name are
      never computed ahead; they need no formulas for the number and the lengths of the vectors.
    - *parts(k, r)*: which parts of its data rank r sends; by default the whole vector. If
      *adds(k)*, the receiver adds them to the same parts of its own data, otherwise they replace
      these parts.
    - *is_constant*: *to* and *source* are the same in all rounds, and never NO_RANK.
    - *is_once*: no rank sends to the same rank twice. If not, two ranks always send to each other
      before either sends to the other again, so that no inbox ever holds two messages from one
      sender.
    - *gathering*: in this number of rounds, from the first, a rank waits for all messages of
      these rounds at once.
    - *group*: for the schedule of a sub-group, the ranks of the cluster that are ranks 0, 1, ...
      here.

    A schedule makes its rounds once; `under` gives them the tag and the vector of each call.
    """

    name: Hashable
    count: int
    to: Formula
    source: Formula
    elements: Formula
    suffix: Callable[[int], str]
    vector: Tensor = NOTHING
    is_constant: bool = False
    is_once: bool = False
    gathering: int = 0
    tensors: Callable[[int], int] = lambda number: 1
    prefix: str = ""
    group: tuple[int, ...] | None = None
    parts: Parts = lambda number, rank: [WHOLE]
    adds: Callable[[int], bool] = lambda number: False

    def content(self, number: int, rank: int) -> Payload:
        """Return the payload, without values, that *rank* sends in round *number*."""
        return hollow(int(self.elements(number, rank)), self.vector.dtype, self.tensors(number))

    def under(self, tag: str, vector: Tensor, **changes: Any) -> Rounds:
        """Return these rounds for vectors like *vector*, with *tag* in front of their tags, and
        with *changes* to other fields.
        """
        found = object.__new__(Rounds)  # `replace` takes six times as long
        found.__dict__.update(vars(self), prefix=tag, vector=vector, **changes)
        return found

    def tag(self, number: int) -> str:
        """Return the tag of the messages of round *number*."""
        return self.prefix + self.suffix(number)

    def steps(self, rank: int, first: int) -> Iterable[RankStep]:
        """Return the steps of *rank* in round *first* and all later rounds."""
        formulas = self.to, self.source, self.parts, self.adds, self.suffix
        if self.count > MOST_KEPT:
            return (_step(number, rank, *formulas) for number in range(first, self.count))
        if first == self.count:
            return ()
        steps = _kept_steps(self.count, rank, *formulas)
        return steps[first:] if first else steps

    @property
    def kind(self) -> Hashable:
        """A key that is equal for all ranks that run the same schedule under the same tag."""
        return self.name, self.tag(0), self.count, self.vector.dtype, self.group


def _step(
    number: int, rank: int, to: Formula, source: Formula, parts: Parts, adds: Callable[[int], bool],
    suffix: Callable[[int], str],
) -> RankStep:  # fmt: skip
    receiver, sender = int(to(number, rank)), int(source(number, rank))
    gives, takes = (() if each == NO_RANK else parts(number, of) for each, of in ((receiver, rank), (sender, sender)))
    return RankStep(receiver, sender, gives, takes, adds(number), suffix(number))


@lru_cache(maxsize=1024)
def _kept_steps(count: int, rank: int, *formulas: Any) -> Sequence[RankStep]:
    return [_step(number, rank, *formulas) for number in range(count)]


def where(condition: Any, one: Any, other: Any) -> Any:
    """Return *one* where *condition* (a bool or an array of bools) is true, and *other*
    elsewhere.
    """
    if isinstance(condition, np.ndarray):
        return np.where(condition, one, other)
    return one if condition else other


@lru_cache(maxsize=4096)
def hollow(length: int, dtype: torch.dtype, count: int = 1) -> Payload:
    """Return a payload of *count* vectors without values. It is cached, since schedules repeat
    lengths.
    """
    return Payload((torch.empty(length, dtype=dtype, device="meta"),) * count)
