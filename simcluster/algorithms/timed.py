"""An algorithm's own arithmetic on the device's clock, its cost counted once per kind of work and shapes."""

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
"""The most numbers of work that is counted on zeros: without values, torch would first import its compiler."""


async def timed(node: Transport, work: Callable[..., T], *args: Any) -> T:
    r"""Run *work(\\*args)* on this node's device; *work* is a module-level function, *args* are tensors, lists of them,
    or numbers.

    The cost depends on shapes alone, not on values, nor on whether anything is computed. So does the result for tensors
    without values: it is found once for all nodes. A number that decides a size is whole: a float changes no cost,
    except if it is 0.
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
    """The *cost* of a kind of work, and what it returns; *is_known*: it gets no values, and returns None or tensors."""

    cost: Cost
    is_known: bool
    found: Any


@lru_cache(maxsize=1024)
def _counted(work: Callable[..., Any], shapes: tuple[Any, ...]) -> CountedWork:
    device = "cpu" if _numbers(shapes) <= FEW else "meta"
    args, results = [_empty(shape, device) for shape in shapes], []
    cost = elementwise_cost(lambda: results.append(work(*args)))
    found, given = results[0], [*_tensors(shapes)]
    parts = found if type(found) in (list, tuple) else () if found is None else (found,)
    lack_values = bool(given) and all(is_meta for _, _, _, is_meta in given)
    is_known = lack_values and all(type(part) is Tensor for part in parts)
    return CountedWork(cost, is_known, _again(found) if is_known else None)


def _again(found: Any) -> Any:
    """Return *found*, None or tensors, without values, in separate tensors: reshaping one in place affects no other."""
    if isinstance(found, Tensor):
        return found.detach() if found.is_meta else found.new_empty(found.shape, device="meta")
    return found if found is None else type(found)([_again(part) for part in found])


def _shape(arg: Any) -> Any:
    """Return what the cost of work on *arg* depends on, of a float that is not 0 nothing, and whether it has values."""
    if isinstance(arg, Tensor):
        return Tensor, arg.shape, arg.dtype, arg.is_meta
    if type(arg) is float:
        return 1.0 if arg else 0.0
    return tuple([_shape(part) for part in arg]) if isinstance(arg, (list, tuple)) else arg


def _is_tensor(shape: Any) -> bool:
    return isinstance(shape, tuple) and len(shape) == 4 and shape[0] is Tensor


def _tensors(shape: Any) -> Iterator[Any]:
    """Yield the tensors of *shape*, in which they are nested."""
    if _is_tensor(shape):
        yield shape
    elif isinstance(shape, tuple):
        for part in shape:
            yield from _tensors(part)


def _empty(shape: Any, device: str) -> Any:
    if _is_tensor(shape):
        return torch.zeros(shape[1], dtype=shape[2], device=device)
    return [_empty(part, device) for part in shape] if isinstance(shape, tuple) else shape


def _numbers(shapes: Any) -> int:
    """Return how many numbers the tensors of *shapes* have together."""
    return sum(math.prod(size) for _, size, _, _ in _tensors(shapes))
