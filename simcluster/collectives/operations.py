"""The collective operations. Every rank calls the same operation, with the same tag and schedule.

Tensors may have any shape and dtype that a message can carry; tensors that are summed must have the
same shape on all ranks. *op* is sum, mean, max or min. The schedule fixes the order of each sum;
the order of arrival never matters. *settings* are those of the schedule: `first` ("near" or "far"
partners first), `sites`,
`weights`, `pieces`. To run on some of the ranks, or with other neighbours, pass `subgroup(node,
ranks)` instead of the node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from simcluster.collectives.operators import Op, prepared
from simcluster.collectives.schedules import find
from simcluster.compute import exchange_of
from simcluster.transport import Transport


async def broadcast(
    node: Transport, tensors: Sequence[Tensor], tag: str, root: int = 0, *, schedule: str = "naive", **settings: Any
) -> list[Tensor]:
    """Return the *tensors* of rank *root* on every rank. The other ranks' *tensors* are ignored,
    except by the ring, which needs the shapes and dtypes.
    """
    _check_root(node, root)
    result: list[Tensor] = await find("broadcast", schedule)[2](node, tensors, tag, root, **settings)
    return result


async def scatter(
    node: Transport, tensors: Sequence[Tensor], tag: str, root: int = 0, *, schedule: str = "naive", **settings: Any
) -> Tensor:
    """Return the r-th of rank *root*'s *tensors* on rank r; the other ranks' *tensors* are
    ignored.
    """
    _check_root(node, root)
    if node.rank == root:
        _check_number(node, tensors)
    result: Tensor = await find("scatter", schedule)[2](node, tensors, tag, root, **settings)
    return result


async def gather(
    node: Transport, tensor: Tensor, tag: str, root: int = 0, *, schedule: str = "naive", **settings: Any
) -> list[Tensor]:
    """Return the list of every rank's *tensor*, in rank order, on rank *root*, and an empty list on
    the other ranks.
    """
    _check_root(node, root)
    result: list[Tensor] = await find("gather", schedule)[2](node, tensor, tag, root, **settings)
    return result


async def reduce(
    node: Transport, tensor: Tensor, tag: str, root: int = 0, *, schedule: str = "naive", op: Op = "sum",
    **settings: Any,
) -> Tensor | None:  # fmt: skip
    """Return the sum, or *op*, of every rank's *tensor* on rank *root*, and None on the other
    ranks.
    """
    _check_root(node, root)
    vector, combining = prepared(tensor, op)
    total: Tensor | None = await find("reduce", schedule)[2](node, vector, tag, root, **settings, **combining)
    return None if total is None else _divided(total, node.size if op == "mean" else 1).view(tensor.shape)


async def all_gather(
    node: Transport, tensor: Tensor, tag: str, *, schedule: str = "ring", **settings: Any
) -> list[Tensor]:
    """Return every rank's *tensor*, in rank order, on every rank. Shapes may differ."""
    result: list[Tensor] = await find("all_gather", schedule)[2](node, tensor, tag, **settings)
    return result


async def reduce_scatter(
    node: Transport, tensor: Tensor, tag: str, *, schedule: str = "ring", op: Op = "sum", **settings: Any
) -> Tensor:
    """Return part r of the sum, or *op*, of every rank's *tensor* on rank r. The sum is flattened
    and split as by `tensor_split`.
    """
    vector, combining = prepared(tensor, op)
    result: Tensor = await find("reduce_scatter", schedule)[2](node, vector, tag, **settings, **combining)
    return _divided(result, node.size if op == "mean" else 1)


async def all_reduce(
    node: Transport, tensor: Tensor, tag: str, *, schedule: str = "ring", op: Op = "sum", divisor: int = 1,
    **settings: Any,
) -> Tensor:  # fmt: skip
    """Return the sum, or *op*, of every rank's *tensor*, with the same bits on every rank.

    A sum is divided by *divisor*; `mean` divides it by the number of ranks.
    """
    if op != "sum" and divisor != 1:
        raise ValueError(f"divisor {divisor} with op {op}: only a sum is divided")
    vector, combining = prepared(tensor, op)
    divisor = node.size if op == "mean" else divisor
    _, name, run = find("all_reduce", schedule)
    if name == "ring":  # the ring divides its own result
        settings["divisor"], divisor = divisor, 1
    return _divided(await run(node, vector, tag, **settings, **combining), divisor).view(tensor.shape)


async def share_statistics(node: Transport, tag: str) -> None:
    """Give every rank the mean of all ranks' running statistics. Use this at a step without an
    all-reduce that the statistics could join.
    """
    exchange = exchange_of(node)
    if exchange is not None:
        await all_reduce(node, exchange.own[0].new_empty(0), tag)


async def all_to_all(
    node: Transport, tensors: Sequence[Tensor], tag: str, *, schedule: str = "pairwise", **settings: Any
) -> list[Tensor]:
    """Return the r-th of every rank's *tensors*, in rank order, on rank r."""
    _check_number(node, tensors)
    result: list[Tensor] = await find("all_to_all", schedule)[2](node, tensors, tag, **settings)
    return result


async def barrier(node: Transport, tag: str, *, schedule: str = "bruck", **settings: Any) -> None:
    """Wait until every rank has called this."""
    await find("barrier", schedule)[2](node, tag, **settings)


def _divided(total: Tensor, divisor: int) -> Tensor:
    return total if divisor == 1 or total.is_meta else total.div_(divisor)


def _check_root(node: Transport, root: int) -> None:
    if not 0 <= root < node.size:
        raise ValueError(f"root {root}: expected a rank from 0 to {node.size - 1}")


def _check_number(node: Transport, tensors: Sequence[Tensor]) -> None:
    if len(tensors) != node.size:
        raise ValueError(f"{len(tensors)} tensors for {node.size} ranks: expected one for each")
