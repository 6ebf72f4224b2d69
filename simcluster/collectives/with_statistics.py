"""All-reduces that carry a replica's running statistics in the same messages. See
simcluster.compute.running.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

from torch import Tensor

from simcluster.collectives.flat import flatten, unflatten
from simcluster.collectives.operators import plus
from simcluster.compute import StatisticsExchange, exchange_of
from simcluster.transport import Transport

AllReduce = Callable[..., Coroutine[Any, Any, Tensor]]


def with_statistics(all_reduce: AllReduce) -> AllReduce:
    """Return *all_reduce*, extended to also sum the running statistics of a node that shares
    them.
    """

    @wraps(all_reduce)
    def run(node: Transport, vector: Tensor, tag: str, **settings: Any) -> Coroutine[Any, Any, Tensor]:
        exchange = exchange_of(node)
        if exchange is None or not vector.is_floating_point() or settings.get("combine", plus) is not plus:
            return all_reduce(node, vector, tag, **settings)
        return _joined(all_reduce, exchange, vector, tag, **settings)

    return run


async def _joined(
    all_reduce: AllReduce, exchange: StatisticsExchange, vector: Tensor, tag: str, **settings: Any
) -> Tensor:
    node, own = exchange.plain, exchange.leave()
    if all((each.dtype, each.device) == (vector.dtype, vector.device) for each in own):
        like = [vector, *own]
        total, *sums = unflatten(await all_reduce(node, flatten(like), tag, **settings), like)
    else:
        total = await all_reduce(node, vector, tag, **settings)
        sums = unflatten(await all_reduce(node, flatten(own), f"{tag}/statistics", **settings), own)
    exchange.arrive(sums)
    return total
