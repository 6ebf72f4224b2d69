"""The model that is everybody's mean, and how far a rank's own is from it.

Gossip has two models that must not be confused: a rank's own, which the run evaluates while it trains, and the mean of
all, which the papers' theorems are about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from simcluster.collectives import flatten, ring_all_reduce, unflatten
from simcluster.errors import PeerLost
from simcluster.transport import Transport
from simcluster.unknown_number import UNKNOWN


async def everybodys_mean(
    node: Transport, tensors: Sequence[Tensor], tag: str, gone: Mapping[int, PeerLost] | None = None
) -> list[Tensor]:
    """The mean of every rank's *tensors*, the same bits everywhere. All ranks take part, in a ring all-reduce.

    With anybody *gone* it is not to be had: raises the first of these losses.
    """
    if gone:
        raise next(iter(gone.values()))
    return unflatten(await ring_all_reduce(node, flatten(tensors), tag) / node.size, tensors)


def squared_distance(a: Sequence[Tensor], b: Sequence[Tensor]) -> float:
    """|a - b|^2, unknown where nothing is computed."""
    if any(tensor.is_meta for tensor in a):
        return UNKNOWN
    return sum(float((mine - other).square().sum()) for mine, other in zip(a, b, strict=True))
