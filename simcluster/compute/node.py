"""A transport for a node with its replica on a device and its messages on the host.

Algorithms combine received tensors with their own, also outside pieces of work. This transport
moves tensors in both directions, so no algorithm needs to name a device.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

from simcluster.compute.host_copies import HostCopies, can_leave
from simcluster.compute.place import synchronise, use
from simcluster.forwarding import Forwarding
from simcluster.payload import Message, Payload, Sendable, as_payload, lend
from simcluster.transport import ANY, Any_, Cost, Transport

T = TypeVar("T")


class DeviceTransport(Forwarding):
    """A wrapper of *node* for an algorithm with its tensors on *device*.

    `send` copies tensors to the host before its first wait. `recv` receives on the host, and
    returns tensors on the device. `compute` returns when the device has finished the work.
    *host_side* is the node without the device, for collectives, which send and add on the host. If
    *node* itself carries tensors on *device*, nothing is copied, and collectives add on the device.
    """

    def __init__(self, node: Transport, device: torch.device) -> None:
        super().__init__(node)
        self.host_side, self._device = node, device
        self._turns: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def send(self, to: int, tag: str, content: Sendable) -> None:
        payload = as_payload(content)
        leaving = None
        if self.carries == self._device:
            if not all(map(can_leave, payload.tensors)):
                payload = Payload(tuple(tensor.to(self._device) for tensor in payload.tensors), payload.values)
        elif not all(map(can_leave, payload.tensors)):
            leaving = HostCopies(payload.tensors)
            payload = lend(*leaving.tensors, **payload.values)
        # Messages to one rank leave in the order of the calls, even while copies are pending.
        async with self._turns[to]:
            if leaving is not None:
                await leaving.arrived()
        await self._node.send(to, tag, payload)

    async def recv(self, source: int | Any_ = ANY, tag: str | Any_ = ANY) -> Message:
        message = await self._node.recv(source, tag)
        if not message.tensors:
            return message
        moved = [tensor.to(self._device, non_blocking=True) for tensor in message.tensors]
        return replace(message, payload=Payload(tuple(moved), message.payload.values))

    async def compute(self, work: Callable[..., T], *args: Any, cost: Cost, **kwargs: Any) -> T:
        # The node refuses anything else.
        plain = callable(work) and not inspect.iscoroutinefunction(work)
        return await self._node.compute(self._whole(work) if plain else work, *args, cost=cost, **kwargs)

    def _whole(self, work: Callable[..., T]) -> Callable[..., T]:
        """Return a function that calls *work* and then waits for the device.

        The duration of the work is known only after this wait.
        """

        @wraps(work)
        def whole(*args: Any, **kwargs: Any) -> T:
            use(self._device)
            result = work(*args, **kwargs)
            synchronise(self._device)
            return result

        return whole


def carries(node: Transport, tensors: Sequence[Tensor]) -> bool:
    """Return whether *node* sends and delivers *tensors* from device to device, without a copy on
    the host.
    """
    device = getattr(node, "carries", None)
    return device is not None and any(tensor.device == device for tensor in tensors)


def host_side(node: Transport) -> Transport:
    """Return *node* without its device: it sends and receives on the host."""
    found: Transport = getattr(node, "host_side", node)
    return found
