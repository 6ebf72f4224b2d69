"""A node with its replica on a device, and its messages on the host.

An algorithm mixes what it receives with its own tensors, on its own lines as well as in pieces of work. So it is given
this node, which moves tensors in both directions: no algorithm names a device.
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

from simcluster.compute.copies import HostCopies, can_leave
from simcluster.compute.place import synchronise, use
from simcluster.forwarding import Forwarding
from simcluster.payload import Message, Payload, Sendable, as_payload, lend
from simcluster.transport import ANY, Any_, Cost, Transport

T = TypeVar("T")


class DeviceTransport(Forwarding):
    """*node*, for an algorithm with tensors on *device*.

    `send` copies them to the host before its first wait. `recv` receives on the host, and hands tensors out on the
    device. A piece of work ends when the device has done it. *host_side* is the node without the device, for
    collectives, which send and add on the host. If *node* carries tensors on *device*, they are not copied, and
    collectives add there.
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
        async with self._turns[to]:  # messages leave in the order of the calls, however long their copies take
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
        plain = callable(work) and not inspect.iscoroutinefunction(work)  # anything else is refused by the node
        return await self._node.compute(self._whole(work) if plain else work, *args, cost=cost, **kwargs)

    def _whole(self, work: Callable[..., T]) -> Callable[..., T]:
        """Return *work*, ending when the device has done it: until then its time is not known."""

        @wraps(work)
        def whole(*args: Any, **kwargs: Any) -> T:
            use(self._device)
            result = work(*args, **kwargs)
            synchronise(self._device)
            return result

        return whole


def carries(node: Transport, tensors: Sequence[Tensor]) -> bool:
    """Return whether *node* sends *tensors* from a device, and delivers them there, without a copy on the host."""
    device = getattr(node, "carries", None)
    return device is not None and any(tensor.device == device for tensor in tensors)


def host_side(node: Transport) -> Transport:
    """Return *node* as it sends and receives on the host."""
    found: Transport = getattr(node, "host_side", node)
    return found
