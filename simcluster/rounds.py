"""A schedule as rounds: in each, every rank sends at most one message, and receives at most one.

The functions are formulas: they take a round's number and a rank, or all ranks. So a schedule among thousands
of ranks is described without a table, and a simulator may compute a round for all ranks together.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from simcluster.payload import Payload

if TYPE_CHECKING:
    from torch import Tensor

NO_RANK = -1
"""In the place of a rank: a message that is not sent, or not received."""

Ranks: TypeAlias = Any
"""A rank, or an array of all ranks in order."""

Formula: TypeAlias = Callable[[int, Ranks], Any]
"""(number of a round, rank) -> a whole number; for all ranks an array, or one number."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """*count* rounds: in round k rank r sends *elements(k, r)* numbers to rank *to(k, r)*, under the tag *tag(k)*.

    It receives from *source(k, r)*. Either may be NO_RANK; in each round at least one rank sends. A message is a vector
    of the type of *vector*, or *tensors(k)* of them, without values. *name* and that type are equal only for the same
    schedule.
    *is_constant*: *to* and *source* are the same in all rounds, and never NO_RANK. *is_once*: no rank sends to the same
    rank twice. Otherwise, ranks that send to each other again have exchanged: so no inbox holds two messages of one
    sender.
    *gathering*: in that many first rounds a rank waits at once for all messages that it receives in them.
    *group*: the ranks of the cluster that are ranks 0, 1, ... here, if it is a sub-group's schedule.
    """

    name: Hashable
    count: int
    to: Formula
    source: Formula
    elements: Formula
    tag: Callable[[int], str]
    vector: Tensor
    is_constant: bool = False
    is_once: bool = False
    gathering: int = 0
    tensors: Callable[[int], int] = lambda number: 1
    group: tuple[int, ...] | None = None

    def content(self, number: int, rank: int) -> Payload:
        """Return what *rank* sends in round *number*."""
        return hollow(int(self.elements(number, rank)), self.vector.dtype, self.tensors(number))

    @property
    def kind(self) -> Hashable:
        """Equal for ranks that have entered the same schedule."""
        return self.name, self.tag(0), self.count, self.vector.dtype, self.group


@lru_cache(maxsize=4096)
def hollow(length: int, dtype: torch.dtype, count: int = 1) -> Payload:
    """Return *count* vectors without values; always the same ones while they are in the cache."""
    return Payload((torch.empty(length, dtype=dtype, device="meta"),) * count)
