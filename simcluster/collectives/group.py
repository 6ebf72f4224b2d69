"""The members of a group as if they were the whole cluster, as ranks 0, 1, ... in the order of their ranks."""

from __future__ import annotations

from collections.abc import Sequence

from simcluster.collectives.subgroup import Subgroup
from simcluster.payload import Message, Sendable
from simcluster.rng import NodeRandom
from simcluster.transport import ANY, Any_, Transport


class Group(Subgroup):
    """*node* as one of *members*. Tags of its messages carry the group's *name*, so that no other group receives them.

    Unlike a sub-group, it can therefore receive from ANY. A PeerLost keeps the node's rank in the cluster. *rng* is
    this node's generator in this group.
    """

    def __init__(self, node: Transport, members: Sequence[int], name: str, rng: NodeRandom | None = None) -> None:
        self.members = sorted(members)
        super().__init__(node, self.members)
        self._prefix = f"{name}:"
        self._rng = rng

    @property
    def rng(self) -> NodeRandom:
        return self._node.rng if self._rng is None else self._rng

    async def send(self, to: int, tag: str, content: Sendable) -> None:
        await super().send(to, self._prefix + tag, content)

    async def recv(self, source: int | Any_ = ANY, tag: str | Any_ = ANY) -> Message:
        if isinstance(tag, Any_):
            raise ValueError("a group that was formed again cannot receive under the tag ANY: name the tag")
        outside = source if isinstance(source, Any_) else self._outside(source)
        return self._seen_inside(await self._node.recv(outside, self._prefix + tag))

    async def exchange(self, to: int, source: int, tag: str, content: Sendable) -> Message:
        return await super().exchange(to, source, self._prefix + tag, content)

    def _seen_inside(self, message: Message) -> Message:
        seen = super()._seen_inside(message)
        seen.tag = seen.tag.removeprefix(self._prefix)
        return seen
