"""Collectives of tensors on a device: they run on the host, and each tensor is copied once in each direction.

If the transport carries the device's tensors they run there.

A schedule sends parts of a vector again and again, and adds what comes: on the device every round would wait for two
copies. On the host the sums also have the same bits whatever the devices are.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from torch import Tensor

from simcluster.compute import HOST, HostCopies, carries, host_side, is_on_host, moved
from simcluster.transport import Transport

P = ParamSpec("P")
R = TypeVar("R")


def on_host(schedule: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return *schedule* for tensors on any device. Its results are where its tensors are."""
    plain: Callable[..., Coroutine[Any, Any, R]] = schedule

    @wraps(schedule)
    def run(node: Transport, *args: Any, **settings: Any) -> Coroutine[Any, Any, R]:
        given = args[0] if args and not isinstance(args[0], str) else ()  # a barrier has no tensors
        tensors = [given] if isinstance(given, Tensor) else given
        if carries(node, tensors):
            return plain(node, *args, **settings)
        node = host_side(node)
        if all(map(is_on_host, tensors)):
            return plain(node, *args, **settings)
        return _moved(plain, node, *args, **settings)

    return cast("Callable[P, Coroutine[Any, Any, R]]", run)


async def _moved(
    schedule: Callable[..., Coroutine[Any, Any, R]],
    node: Transport,
    given: Tensor | Sequence[Tensor],
    *args: Any,
    **settings: Any,
) -> R:
    tensors = [given] if isinstance(given, Tensor) else list(given)
    leaving = HostCopies(tensors)
    await leaving.arrived()
    result = await schedule(
        node, leaving.tensors[0] if isinstance(given, Tensor) else leaving.tensors, *args, **settings
    )
    there: R = moved(result, next(tensor.device for tensor in tensors if tensor.device != HOST))
    return there
