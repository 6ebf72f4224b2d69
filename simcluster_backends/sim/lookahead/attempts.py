"""Schedules with values that ranks enter without being held, since ranks were last held in vain."""

from __future__ import annotations

from collections.abc import Container

PASSED = 10
"""Schedules with values that are simulated after an attempt that failed, before the next one."""


class Attempts:
    """When to hold ranks before rounds with values, which are computed only if all ranks enter at one instant.

    Ranks with different devices or links enter each schedule at different instants, and holding them costs as much as a
    message. Simulated rounds have the same bits, so this decides nothing but the time that a simulation takes.
    """

    def __init__(self) -> None:
        self._left: dict[int, int] = {}  # by rank

    def fail(self, entered: Container[int], size: int) -> None:
        """Note that the ranks *entered* were held in vain; the others of *size* have yet to enter that schedule."""
        self._left = {rank: PASSED if rank in entered else PASSED + 1 for rank in range(size)}

    def is_due(self, rank: int) -> bool:
        """Return whether to hold *rank*, which enters the next schedule."""
        if left := self._left.get(rank, 0):
            self._left[rank] = left - 1
        return not left
