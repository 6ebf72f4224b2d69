"""A base class for transports that pass most calls on to another transport.

It offers no shortcuts, since they would bypass the methods that a subclass overrides; a subclass
may offer its own.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from simcluster.payload import Message, Sendable
from simcluster.rng import NodeRandom
from simcluster.shortcuts import Shortcuts
from simcluster.transport import ANY, Any_, Cost, Transport

T = TypeVar("T")


class Forwarding:
    """A transport that passes every call on to *node*."""

    fast: Shortcuts | None = None

    def __init__(self, node: Transport) -> None:
        self._node = node
        self.name = node.name

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
        """The device with tensors that the node sends without a copy on the host; None if there is
        none. See simcluster.compute.node.carries.
        """
        return getattr(self._node, "carries", None)

    # These are not `async def`, so that the caller awaits the coroutine of *node* itself, without a
    # frame in between.

    def send(self, to: int, tag: str, content: Sendable) -> Coroutine[Any, Any, None]:
        return self._node.send(to, tag, content)

    def recv(self, source: int | Any_ = ANY, tag: str | Any_ = ANY) -> Coroutine[Any, Any, Message]:
        return self._node.recv(source, tag)

    def compute(self, work: Callable[..., T], *args: Any, cost: Cost, **kwargs: Any) -> Coroutine[Any, Any, T]:
        return self._node.compute(work, *args, cost=cost, **kwargs)

    def record(self, *, step: int, **metrics: float) -> None:
        self._node.record(step=step, **metrics)
