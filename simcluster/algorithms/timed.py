"""An algorithm's own arithmetic on the device's clock, its cost counted once per kind of work and shapes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import torch
from torch import Tensor

from simcluster.transport import Cost, Transport
from simcluster.workloads.operator_costs import elementwise_cost

T = TypeVar("T")


async def timed(node: Transport, work: Callable[..., T], *args: Any) -> T:
    r"""Run *work(\\*args)* on this node's device; *work* is a module-level function, *args* are tensors, lists of them,
    or numbers.

    The cost is counted on tensors without values, so it never depends on them, nor on whether anything is computed.
    """
    return await node.compute(work, *args, cost=cost_of(work, *args))


def cost_of(work: Callable[..., Any], *args: Any) -> Cost:
    r"""Return the device cost of *work(\\*args)*, at one FLOP per element that an operator writes."""
    return _counted(work, tuple(_shape(arg) for arg in args))


@lru_cache(maxsize=1024)
def _counted(work: Callable[..., Any], shapes: tuple[Any, ...]) -> Cost:
    empty = [_empty(shape) for shape in shapes]
    return elementwise_cost(lambda: work(*empty))


class _Tensor(tuple[torch.Size, torch.dtype]):
    """A tensor's shape and dtype, in its place."""


def _shape(arg: Any) -> Any:
    if isinstance(arg, Tensor):
        return _Tensor((arg.shape, arg.dtype))
    return tuple(_shape(part) for part in arg) if isinstance(arg, (list, tuple)) else arg


def _empty(shape: Any) -> Any:
    if isinstance(shape, _Tensor):
        return torch.empty(shape[0], dtype=shape[1], device="meta")
    return [_empty(part) for part in shape] if isinstance(shape, tuple) else shape
