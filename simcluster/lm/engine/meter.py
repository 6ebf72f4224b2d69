"""A node that counts the seconds that its device worked, and the bytes that it sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from simcluster.forwarding import Forwarding
from simcluster.lm.engine.desk import NodeLoad
from simcluster.payload import Sendable, as_payload, sizes_of
from simcluster.transport import Cost, Transport

T = TypeVar("T")

_decoder = msgspec.json.Decoder(tuple[NodeLoad, ...])


class LoadMeter(Forwarding):
    """*node*, with its load so far; `heard` takes those of others."""

    def __init__(self, node: Transport) -> None:
        super().__init__(node)
        self._busy_s, self._sent_bytes = 0.0, 0
        self._others: dict[str, NodeLoad] = {}

    async def compute(self, work: Callable[..., T], *args: Any, cost: Cost, **kwargs: Any) -> T:
        began_s = _now_s()
        try:
            return await self._node.compute(work, *args, cost=cost, **kwargs)
        finally:
            self._busy_s += _now_s() - began_s

    async def send(self, to: int, tag: str, content: Sendable) -> None:
        payload = as_payload(content)
        self._sent_bytes += sum(sizes_of(tag, payload))
        await self._node.send(to, tag, payload)

    def told(self, before: str = "[]") -> str:
        """Return the loads *before*, with this node's after them, as a message has them."""
        return msgspec.json.encode((*_decoder.decode(before), self.load)).decode()

    def heard(self, loads: str) -> None:
        """Take the loads that a message has."""
        self._others.update((one.name, one) for one in _decoder.decode(loads))

    @property
    def load(self) -> NodeLoad:
        return NodeLoad(self.name, self._busy_s, self._sent_bytes)

    @property
    def loads(self) -> tuple[NodeLoad, ...]:
        """This node's load now, and the last ones heard of the others."""
        return (self.load, *(one for name, one in self._others.items() if name != self.name))


def _now_s() -> float:
    return asyncio.get_running_loop().time()
