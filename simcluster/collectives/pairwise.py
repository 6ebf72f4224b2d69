"""Pairwise schedules: in round k each rank sends to the k-th rank after it, so no two messages of a
round share a link.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from torch import Tensor

from simcluster.collectives.exchange import run_rounds
from simcluster.collectives.flat import length_of, summed
from simcluster.collectives.held_parts import HeldParts
from simcluster.collectives.operators import Combine, plus
from simcluster.rounds import Ranks, Rounds
from simcluster.transport import Transport


async def pairwise_all_to_all(node: Transport, tensors: Sequence[Tensor], tag: str) -> list[Tensor]:
    """Return the r-th of every rank's *tensors*, in rank order, on rank r."""
    rank, rounds = node.rank, _rounds(node.size)
    changes = {}
    if all(tensor.is_meta and tensor.dim() == 1 and tensor.dtype is tensors[0].dtype for tensor in tensors):
        lengths = np.array([len(tensor) for tensor in tensors])
        changes = _named(rounds, ("all-to-all", lengths.tobytes()), lambda to: lengths[to])
    held = HeldParts([((rank, to), tensor) for to, tensor in enumerate(tensors)], like=tensors[rank])
    await run_rounds(node, rounds.under(tag, tensors[0], **changes), held)
    return [held[source, rank] for source in range(node.size)]


async def pairwise_reduce_scatter(node: Transport, vector: Tensor, tag: str, *, combine: Combine = plus) -> Tensor:
    """Return part r of the sum of every rank's *vector* (1-D, equal length) on rank r, added in
    rank order.
    """
    size, length = node.size, len(vector)
    if vector.is_meta:
        rounds = _rounds(size)
        changes = _named(rounds, ("pairwise", length), lambda to: length_of(to, length, size))
        await run_rounds(node, rounds.under(tag, vector, **changes))
        return vector.new_empty(length_of(node.rank, length, size))
    return summed(await pairwise_all_to_all(node, vector.tensor_split(size), tag), combine)


def _named(rounds: Rounds, name: Hashable, length: Callable[[Ranks], Ranks]) -> dict[str, Any]:
    """Return the changes to *rounds* if a message to rank r has *length(r)* numbers: *name*, and
    the formula for these lengths.
    """
    return {"name": name, "elements": lambda number, rank: length(rounds.to(number, rank))}


@lru_cache(maxsize=64)
def _rounds(size: int) -> Rounds:
    def to(number: int, rank: Ranks) -> Ranks:
        return (rank + number + 1) % size

    return Rounds(
        None,
        size - 1,
        to=to,
        source=lambda number, rank: (rank - number - 1) % size,
        elements=lambda number, rank: 0,
        suffix=lambda number: f"/{number + 1}",
        is_once=True,
        parts=lambda number, rank: [(rank, to(number, rank))],
    )
