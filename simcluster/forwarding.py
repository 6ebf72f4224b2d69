"""A transport that passes every verb on to another one: a subclass changes some of them.

It hides the verbs of simcluster.transport.OptionalVerbs, which would bypass the ones that are changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from simcluster.payload import Message, Sendable
from simcluster.rng import NodeRandom
from simcluster.transport import ANY, Any_, Cost, Transport

T = TypeVar("T")


class Forwarding:
    """*node*, verb by verb."""

    def __init__(self, node: Transport) -> None:
        self._node, self.name = node, node.name

    @property
    def rank(self) -> int:
        return self._node.rank

    @property
    def size(self) -> int:
        return self._node.size

    @property
    def rng(self) -> NodeRandom:
        return self._node.rng

    @property
    def peers(self) -> Sequence[int]:
        return self._node.peers

    @property
    def recorder(self) -> Any:
        """The recorder of the node's run; None if there is none."""
        return getattr(self._node, "recorder", None)

    @property
    def carries(self) -> Any:
        """See simcluster.compute.carries."""
        return getattr(self._node, "carries", None)

    async def send(self, to: int, tag: str, content: Sendable) -> None:
        await self._node.send(to, tag, content)

    async def recv(self, source: int | Any_ = ANY, tag: str | Any_ = ANY) -> Message:
        return await self._node.recv(source, tag)

    async def compute(self, work: Callable[..., T], *args: Any, cost: Cost, **kwargs: Any) -> T:
        return await self._node.compute(work, *args, cost=cost, **kwargs)

    def record(self, *, step: int, **metrics: float) -> None:
        self._node.record(step=step, **metrics)
