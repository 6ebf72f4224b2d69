"""A stage on its node's device, with the seconds that it worked and the bytes that it sent."""

from __future__ import annotations

import asyncio

import msgspec
from torch import Tensor

from simcluster.inference.engine.batch import Batch
from simcluster.inference.engine.desk import NodeLoad
from simcluster.inference.engine.stage import Stage
from simcluster.payload import Payload, sizes_of
from simcluster.transport import Transport


class Heard(msgspec.Struct, frozen=True, array_like=True):
    """A node's load, as messages have it."""

    name: str
    busy_s: float
    sent_bytes: int


_decoder = msgspec.json.Decoder(tuple[Heard, ...])


class Meter:
    """Runs *stage* on the device of *node*, and counts."""

    def __init__(self, node: Transport, stage: Stage) -> None:
        self._node, self._stage = node, stage
        self._busy_s, self._sent_bytes = 0.0, 0
        self._others: tuple[Heard, ...] = ()

    async def forward(self, batch: Batch, inputs: Tensor) -> Tensor:
        """See Stage."""
        began_s = _now_s()
        outputs = await self._node.compute(self._stage.forward, batch, inputs, cost=self._stage.costs.layers_of(batch))
        self._busy_s += _now_s() - began_s
        return outputs

    async def choose(self, batch: Batch, logits: Tensor) -> Tensor:
        """See Stage. The logits' product is part of this work's cost."""
        if not batch.samples:
            return self._stage.choose(batch, logits)
        began_s = _now_s()
        tokens = await self._node.compute(self._stage.choose, batch, logits, cost=self._stage.costs.head_of(batch))
        self._busy_s += _now_s() - began_s
        return tokens

    async def send(self, to: int, tag: str, content: Payload) -> None:
        """Send *content*, and count its bytes."""
        self._sent_bytes += sum(sizes_of(tag, content))
        await self._node.send(to, tag, content)

    def loads(self, before: str = "[]") -> str:
        """Return the loads *before*, with this node's after them, as a message has them."""
        own = Heard(self._node.name, self._busy_s, self._sent_bytes)
        return msgspec.json.encode((*_decoder.decode(before), own)).decode()

    def heard(self, loads: str) -> None:
        """Take the loads of a message that has come back; the first is this node's own."""
        self._others = _decoder.decode(loads)[1:]

    @property
    def all_loads(self) -> tuple[NodeLoad, ...]:
        """This node's load now, and those heard of."""
        own = NodeLoad(self._node.name, self._busy_s, self._sent_bytes)
        return (own, *(NodeLoad(one.name, one.busy_s, one.sent_bytes) for one in self._others))


def _now_s() -> float:
    return asyncio.get_running_loop().time()
