"""Orders of nodes that are one move away from another, for searches among more than can all be tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def moves(order: tuple[int, ...], ranks: Sequence[int], *, fixed: bool) -> Iterator[tuple[int, ...]]:
    """Yield the orders one change away from *order*, of some of *ranks*; *fixed*: with the same ranks."""
    p, rest = len(order), [rank for rank in ranks if rank not in order]
    for i in range(p):
        for j in range(i + 1, p):
            yield *order[:i], order[j], *order[i + 1 : j], order[i], *order[j + 1 :]
    if fixed:
        return
    for i in range(p):
        for rank in rest:
            yield *order[:i], rank, *order[i + 1 :]
    for i in range(p if p > 1 else 0):
        yield *order[:i], *order[i + 1 :]
    for i in range(p + 1):
        for rank in rest:
            yield *order[:i], rank, *order[i:]
