"""Orders of ranks that are one change away from another, for a local search among all orders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def moves(order: tuple[int, ...], ranks: Sequence[int], *, fixed: bool) -> Iterator[tuple[int, ...]]:
    """Yield all orders that are one change away from *order*, which contains some of *ranks*.

    A change swaps two ranks. Unless *fixed*, it may also replace, remove or add a rank.
    """
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
