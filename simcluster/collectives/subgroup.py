"""Sub-groups: some ranks of a cluster, in a given order, that look like a whole cluster, so any
collective runs on them.

The order of the list is the order of neighbours: in a ring each rank sends to the one after it in the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simcluster.collectives.exchange import exchange, skipped
from simcluster.compute import host_side
from simcluster.forwarding import Forwarding
from simcluster.payload import Message, Sendable
from simcluster.rng import NodeRandom
from simcluster.rounds import Rounds
from simcluster.shortcuts import Shortcuts, shortcuts_of
from simcluster.transport import ANY, Any_, Transport


def subgroup(node: Transport, ranks: Sequence[int]) -> Transport:
    """Return *node* as a member of a sub-group in which *ranks* are numbered 0, 1, ... in this
    order.

    Every member must pass the same list.

    If two groups share a pair of ranks, their tags must differ. Raise ValueError for a rank that
    does not exist or is listed twice, or if this node's rank is missing.
    """
    ranks = list(ranks)
    strange = sorted({rank for rank in ranks if not 0 <= rank < node.size or ranks.count(rank) > 1})
    if strange:
        raise ValueError(f"sub-group {ranks} of {node.size} ranks: {strange[0]} does not exist, or is listed twice")
    if node.rank not in ranks:
        raise ValueError(f"sub-group {ranks}: rank {node.rank} is not a member")
    return node if ranks == list(range(node.size)) else Subgroup(node, ranks)


class Subgroup(Forwarding):
    """The transport of a sub-group. See `subgroup`.

    It differs from the node's transport in the numbering of ranks, and cannot receive from ANY.
    """

    def __init__(self, node: Transport, ranks: Sequence[int]) -> None:
        super().__init__(node)
        self._ranks = list(ranks)
        self._place = {rank: place for place, rank in enumerate(ranks)}
        if shortcuts_of(node) is not None:
            self.fast = Shortcuts(self._exchange, rounds_ahead=self._rounds_ahead)

    @property
    def host_side(self) -> Transport:
        """The transport of this sub-group for tensors on the host. See simcluster.compute."""
        host = host_side(self._node)
        return self if host is self._node else Subgroup(host, self._ranks)

    @property
    def rank(self) -> int:
        return self._place[self._node.rank]

    @property
    def size(self) -> int:
        return len(self._ranks)

    @property
    def peers(self) -> list[int]:
        return sorted(self._place[rank] for rank in self._node.peers if rank in self._place)

    async def send(self, to: int, tag: str, content: Sendable) -> None:
        await self._node.send(self._outside(to), tag, content)

    async def recv(self, source: int | Any_ = ANY, tag: str | Any_ = ANY) -> Message:
        if isinstance(source, Any_):
            raise ValueError("a sub-group cannot receive from ANY, which may be a rank outside: name the rank")
        return self._seen_inside(await self._node.recv(self._outside(source), tag))

    async def _exchange(self, to: int, source: int, tag: str, content: Sendable) -> Message:
        return self._seen_inside(await exchange(self._node, self._outside(to), self._outside(source), tag, content))

    async def _rounds_ahead(self, rounds: Rounds) -> int:
        group = range(self.size) if rounds.group is None else rounds.group
        outside = tuple([self._outside(place) for place in group])
        return await skipped(self._node, replace(rounds, group=outside))

    def _outside(self, place: int) -> int:
        if not 0 <= place < self.size:
            raise ValueError(f"rank {place} is not in the sub-group {self._ranks}: expected 0 to {self.size - 1}")
        return self._ranks[place]

    def _seen_inside(self, message: Message) -> Message:
        return replace(message, source=self._place[message.source])


class NamedSubgroup(Subgroup):
    """The sub-group of *members*, in rank order, with the group's *name* in the tags of its
    messages.

    No other group receives these messages, so unlike other sub-groups it can receive from ANY. A
    PeerLost names the lost node by its rank in the cluster. *rng* is this node's generator in this
    group; None keeps the node's.
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

    async def _exchange(self, to: int, source: int, tag: str, content: Sendable) -> Message:
        return await super()._exchange(to, source, self._prefix + tag, content)

    async def _rounds_ahead(self, rounds: Rounds) -> int:
        return await super()._rounds_ahead(replace(rounds, prefix=self._prefix + rounds.prefix))

    def _seen_inside(self, message: Message) -> Message:
        seen = super()._seen_inside(message)
        seen.tag = seen.tag.removeprefix(self._prefix)
        return seen
