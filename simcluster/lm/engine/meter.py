"""A node that measures its load: the seconds that its device was busy, and the bytes sent."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec
from torch import Tensor

from simcluster.compute import host_side
from simcluster.forwarding import Forwarding
from simcluster.lm.engine.request_source import NodeLoad
from simcluster.payload import Payload, Scalar, Sendable, size_of
from simcluster.transport import Cost, Transport

T = TypeVar("T")

_decoder = msgspec.json.Decoder(tuple[NodeLoad, ...])


class LoadMeter(Forwarding):
    """A wrapper of *node* that measures its load and stores the latest load of every other node."""

    def __init__(self, node: Transport) -> None:
        super().__init__(node)
        self._now_s = asyncio.get_running_loop().time
        self._busy_s = 0.0
        self._sent_bytes = [0]  # a list, which the copy for the host's side shares
        self._others: dict[str, NodeLoad] = {}

    @property
    def host_side(self) -> LoadMeter:
        """This node without its device, for collectives; see `simcluster.compute.host_side`."""
        host = host_side(self._node)
        if host is self._node:
            return self
        found = copy.copy(self)
        found._node = host
        return found

    async def compute(self, work: Callable[..., T], *args: Any, cost: Cost, **kwargs: Any) -> T:
        began_s = self._now_s()
        try:
            return await self._node.compute(work, *args, cost=cost, **kwargs)
        finally:
            self._busy_s += self._now_s() - began_s

    def send(self, to: int, tag: str, content: Sendable) -> Coroutine[Any, Any, None]:
        self._sent_bytes[0] += size_of(tag, content)
        return self._node.send(to, tag, content)

    def send_with_loads(
        self, to: int, tag: str, *tensors: Tensor, before: str = "[]", **values: Scalar
    ) -> Coroutine[Any, Any, None]:
        """Send *tensors* and *values* with the JSON loads *before*, followed by this node's load.

        Each stage of a pipeline passes on the loads of the stages before it.
        """
        loads = msgspec.json.encode((*_decoder.decode(before), self.load)).decode()
        return self.send(to, tag, Payload(tensors, {**values, "loads": loads}))

    def heard(self, loads: str) -> None:
        """Store the JSON *loads* of other nodes, received in a message."""
        self._others.update((one.name, one) for one in _decoder.decode(loads))

    @property
    def load(self) -> NodeLoad:
        return NodeLoad(self.name, self._busy_s, self._sent_bytes[0])

    @property
    def loads(self) -> tuple[NodeLoad, ...]:
        """The current load of this node, then the last known load of every other node."""
        return (self.load, *(one for name, one in self._others.items() if name != self.name))
