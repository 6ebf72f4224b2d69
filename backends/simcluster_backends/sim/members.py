"""The nodes of a cluster by rank. A resting node is made when a message is first sent to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simcluster_backends.sim.member import SimMember


class Members:
    """The nodes of *size* ranks, each in its current incarnation.

    *make* makes the node of a rank when it is first looked up. Iteration and `in` ignore nodes that
    have not been made.
    """

    def __init__(self, size: int, make: Callable[[int], SimMember]) -> None:
        self._size = size
        self._make = make
        self._made: dict[int, SimMember] = {}

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, rank: int) -> SimMember:
        member = self._made.get(rank)
        if member is None:
            member = self._made[rank] = self._make(rank)
        return member

    def __setitem__(self, rank: int, member: SimMember) -> None:
        self._made[rank] = member

    def __contains__(self, rank: object) -> bool:
        return rank in self._made

    def __iter__(self) -> Iterator[SimMember]:
        return iter([self._made[rank] for rank in sorted(self._made)])

    def first_resting(self) -> int | None:
        """Return the lowest rank that has not been made."""
        return next((rank for rank in range(self._size) if rank not in self._made), None)
