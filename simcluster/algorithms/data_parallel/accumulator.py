"""Sums of every rank's contribution to one step of one shard. Pure: it never waits.

Late and duplicate contributions are refused without a trace. Taking a sum drops it and everything left of the shard's
earlier steps.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

Verdict = Literal["taken", "stale", "duplicate"]


class Accumulator:
    """Sums over *size* ranks, each contributing once per (step, shard); steps are numbered upwards.

    *applied* and *rejected* count contributions: those added = applied + rejected + `waiting`.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"an accumulator for {size} ranks: at least 1")
        self._size = size
        self._parts: dict[int, dict[int, dict[int, Tensor]]] = {}  # shard -> step -> rank -> contribution
        self._taken: dict[int, int] = {}  # shard -> the last step taken
        self.applied = self.rejected = 0

    def add(self, step: int, shard: int, rank: int, tensor: Tensor) -> Verdict:
        """Keep *tensor* until the sum is taken, unless it is refused. Raise ValueError if *rank* does not exist."""
        if not 0 <= rank < self._size:
            raise ValueError(f"a contribution of rank {rank}: expected 0 to {self._size - 1}")
        last = self._taken.get(shard)
        if last is not None and step <= last:
            self.rejected += 1
            return "stale"
        parts = self._parts.setdefault(shard, {}).setdefault(step, {})
        if rank in parts:
            self.rejected += 1
            return "duplicate"
        parts[rank] = tensor
        return "taken"

    def is_complete(self, step: int, shard: int) -> bool:
        """Return whether every rank has contributed."""
        return len(self._parts.get(shard, {}).get(step, {})) == self._size

    def take(self, step: int, shard: int) -> Tensor:
        """Return the sum, in rank order, and close *step* and all earlier steps of *shard*.

        Raise ValueError if a contribution is missing.
        """
        if not self.is_complete(step, shard):
            found = sorted(self._parts.get(shard, {}).get(step, {}))
            raise ValueError(f"step {step} of shard {shard} has contributions of ranks {found} of {self._size} only")
        steps = self._parts.pop(shard)
        parts = steps.pop(step)
        self._taken[shard] = step
        self.applied += len(parts)
        self.rejected += sum(len(steps[old]) for old in steps if old < step)
        later = {number: rest for number, rest in steps.items() if number > step}
        if later:
            self._parts[shard] = later
        total = parts[0].clone()
        for rank in range(1, self._size):
            total.add_(parts[rank])
        return total

    @property
    def waiting(self) -> int:
        """The number of contributions held."""
        return sum(len(parts) for steps in self._parts.values() for parts in steps.values())
