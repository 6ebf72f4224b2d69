"""A node that counts the tensor bytes it sends, without headers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from torch import Tensor

from simcluster.collectives.exchange import exchange
from simcluster.payload import Message, Sendable, as_payload, body_bytes
from simcluster.transport import ANY, Accelerated, Any_, Transport


class Counted:
    """Forwards to *node*; *payload_B* counts the tensor bytes sent."""

    def __init__(self, node: Transport) -> None:
        self._node = node
        self.payload_B = 0

    def __getattr__(self, name: str) -> Any:
        if name in ("rank", "size", "name", "rng", "peers", "compute", "record"):
            return getattr(self._node, name)
        raise AttributeError(name)

    async def send(self, to: int, tag: str, content: Sendable) -> None:
        self.payload_B += body_bytes(as_payload(content))
        await self._node.send(to, tag, content)

    async def recv(self, source: int | Any_ = ANY, tag: str | Any_ = ANY) -> Message:
        return await self._node.recv(source, tag)

    async def exchange(self, to: int, source: int, tag: str, content: Sendable) -> Message:
        """Exchange and count: see simcluster.collectives.exchange."""
        self.payload_B += body_bytes(as_payload(content))
        return await exchange(self._node, to, source, tag, content)

    async def ring_ahead(self, vector: Tensor, lengths: Sequence[int], tag_of: Callable[[int], str]) -> int:
        """Look ahead as the transport does, and count its rounds as well."""
        has_it = hasattr(self._node, "ring_ahead")
        rounds = await cast(Accelerated, self._node).ring_ahead(vector, lengths, tag_of) if has_it else 0
        elements = sum(lengths[(self._node.rank - number) % len(lengths)] for number in range(rounds))
        self.payload_B += elements * vector.element_size()
        return rounds
