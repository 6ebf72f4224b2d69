"""The members of a group as if they were all there is: ranks 0, 1, ... in the order of their own, and nobody else.

This file knows ranks and tags. It must not know how a group comes about, or what is sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from simcluster.collectives.exchange import exchange
from simcluster.forwarding import Forwarding
from simcluster.payload import Message, Sendable
from simcluster.rng import NodeRandom
from simcluster.transport import ANY, Any_, Transport


class Group(Forwarding):
    """*node* among *members*. What it sends bears the group's *name* in its tag, so that no other group receives it.

    A PeerLost keeps the rank that the node has in the cluster. *rng* is what this node draws from in this group.
    """

    def __init__(self, node: Transport, members: Sequence[int], name: str, rng: NodeRandom | None = None) -> None:
        super().__init__(node)
        self.members = sorted(members)
        self._place = {rank: place for place, rank in enumerate(self.members)}
        self._prefix = f"{name}:"
        self._rng = rng

    @property
    def rank(self) -> int:
        return self._place[self._node.rank]

    @property
    def size(self) -> int:
        return len(self.members)

    @property
    def rng(self) -> NodeRandom:
        return self._node.rng if self._rng is None else self._rng

    @property
    def peers(self) -> list[int]:
        return [self._place[rank] for rank in self._node.peers if rank in self._place]

    async def send(self, to: int, tag: str, content: Sendable) -> None:
        await self._node.send(self._outside(to), self._named(tag), content)

    async def recv(self, source: int | Any_ = ANY, tag: str | Any_ = ANY) -> Message:
        if isinstance(tag, Any_):
            raise ValueError("a group that is formed anew cannot receive under the tag ANY: name the tag")
        outside = source if isinstance(source, Any_) else self._outside(source)
        return self._seen_inside(await self._node.recv(outside, self._named(tag)))

    async def exchange(self, to: int, source: int, tag: str, content: Sendable) -> Message:
        """See simcluster.collectives.exchange."""
        pair = self._outside(to), self._outside(source)
        return self._seen_inside(await exchange(self._node, *pair, self._named(tag), content))

    def _named(self, tag: str) -> str:
        return self._prefix + tag

    def _outside(self, place: int) -> int:
        if not 0 <= place < self.size:
            raise ValueError(f"rank {place} is not in the group {self.members}: expected 0 to {self.size - 1}")
        return self.members[place]

    def _seen_inside(self, message: Message) -> Message:
        source, tag = self._place[message.source], message.tag.removeprefix(self._prefix)
        return Message(source, tag, message.payload, message.size_bytes, message.arrival)
