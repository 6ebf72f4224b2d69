"""Timing of an algorithm's own arithmetic on the device's clock.

The cost is counted once per function and shapes of its arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from simcluster.transport import Cost, Transport
from simcluster.workloads.operator_costs import elementwise_cost

T = TypeVar("T")

FEW = 2**20
"""The maximum number of elements for which work is counted by running it on zeros. Larger work runs
on meta tensors, for which torch imports its compiler.
"""


async def timed(node: Transport, work: Callable[..., T], *args: Any) -> T:
    r"""Run *work(\\*args)* on this node's device; *work* is a module-level function, *args* are tensors, lists of them,
    or numbers.

    The cost depends only on shapes: neither on values nor on whether the tensors have values. If
    they have none, the result also depends only on shapes, so it is computed once for all nodes.
    All floats except 0 count as equal, so a number that decides a size must be an int.
    """
    counted = _counted(work, tuple([_shape(arg) for arg in args]))
    if counted.is_known:
        again: T = await node.compute(_again, counted.found, cost=counted.cost)
        return again
    return await node.compute(work, *args, cost=counted.cost)


def cost_of(work: Callable[..., Any], *args: Any) -> Cost:
    r"""Return the device cost of *work(\\*args)*, at one FLOP per element that an operator writes."""
    return _counted(work, tuple([_shape(arg) for arg in args])).cost


class CountedWork(NamedTuple):
    """The *cost* of a function on arguments of some shapes.

    If *is_known*, *found* is its result: tensors without values, or None.
    """

    cost: Cost
    is_known: bool
    found: Any


@lru_cache(maxsize=1024)
def _counted(work: Callable[..., Any], shapes: tuple[Any, ...]) -> CountedWork:
    device = "cpu" if sum(math.prod(size) for _, size, _, _ in _tensors(shapes)) <= FEW else "meta"
    args, results = [_empty(shape, device) for shape in shapes], []
    cost = elementwise_cost(lambda: results.append(work(*args)))
    found, given = results[0], [*_tensors(shapes)]
    parts = found if type(found) in (list, tuple) else () if found is None else (found,)
    lack_values = bool(given) and all(is_meta for _, _, _, is_meta in given)
    is_known = lack_values and all(type(part) is Tensor for part in parts)
    return CountedWork(cost, is_known, _again(found) if is_known else None)


def _again(found: Any) -> Any:
    """Return new tensors without values and with the shapes of *found*. They are new so that
    reshaping one in place affects no other node's.

    None stays None.
    """
    if isinstance(found, Tensor):
        return found.detach() if found.is_meta else found.new_empty(found.shape, device="meta")
    return found if found is None else type(found)([_again(part) for part in found])


def _shape(arg: Any) -> Any:
    """Return a key of everything in *arg* that the cost of work can depend on: the shapes of
    tensors and the values of other arguments, where a float counts as 0 or 1.
    """
    if isinstance(arg, Tensor):
        return Tensor, arg.shape, arg.dtype, arg.is_meta
    if type(arg) is float:
        return 1.0 if arg else 0.0
    return tuple([_shape(part) for part in arg]) if isinstance(arg, (list, tuple)) else arg


def _is_tensor(shape: Any) -> bool:
    return isinstance(shape, tuple) and len(shape) == 4 and shape[0] is Tensor


def _tensors(shape: Any) -> Iterator[Any]:
    """Yield the keys of all tensors in *shape*, at any depth."""
    if _is_tensor(shape):
        yield shape
    elif isinstance(shape, tuple):
        for part in shape:
            yield from _tensors(part)


def _empty(shape: Any, device: str) -> Any:
    if _is_tensor(shape):
        return torch.zeros(shape[1], dtype=shape[2], device=device)
    return [_empty(part, device) for part in shape] if isinstance(shape, tuple) else shape
