"""Sums of every rank's contribution to one step of one shard.

The arithmetic is pure: no method waits.

Late and duplicate contributions are refused and only counted. Taking a sum discards its
contributions and any that were made to earlier steps of the shard.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

Verdict = Literal["taken", "stale", "duplicate"]


class Accumulator:
    """Sums of the contributions of *size* ranks, one per rank, step and shard. A later step has a
    higher number.

    *applied* and *rejected* count contributions: each one passed to `add` is applied, rejected or
    still `waiting`.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"an accumulator for {size} ranks: at least 1")
        self._size = size
        self._parts: dict[int, dict[int, dict[int, Tensor]]] = {}  # shard -> step -> rank -> contribution
        self._taken: dict[int, int] = {}  # shard -> the last step that was summed
        self.applied = self.rejected = 0

    def add(self, step: int, shard: int, rank: int, tensor: Tensor) -> Verdict:
        """Keep *tensor* until the sum is taken, and return "taken"; if it is refused, return the
        reason instead.

        Raise ValueError if *rank* is out of range.
        """
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
        """Return whether every rank has contributed to *step* of *shard*."""
        return len(self._parts.get(shard, {}).get(step, {})) == self._size

    def take(self, step: int, shard: int) -> Tensor:
        """Add up the contributions in rank order and return the sum; close *step* and all earlier
        steps of *shard*.

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
        """The number of contributions that are held and not yet summed."""
        return sum(len(parts) for steps in self._parts.values() for parts in steps.values())
