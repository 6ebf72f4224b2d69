"""Collectives of tensors that are on a device.

They run on the host, and each tensor is copied once in each direction.

If the transport carries the device's tensors, collectives run on the device.

A schedule sends parts of a vector and adds arriving parts in every round: on a device, every round
would wait for two copies. Sums on the host also have the same bits for all kinds of devices.
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
    """Return *schedule*, made to work for tensors on any device. Results are on the device of the
    tensors.
    """
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
