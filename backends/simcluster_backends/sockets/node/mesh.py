"""The data lane: one authenticated connection between each pair of nodes of a run.

Each pair of founders has one connection: the node with the higher rank connects, the other accepts.
The listener stays open during the run, and a node that joins late or rejoins connects to all
present nodes. A node is refused unless its incarnation is higher than all earlier ones of its name,
or it resumes the connection of its incarnation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from simcluster.errors import ABSENT, NeverFinished
from simcluster.fault_plans.kinds import DEAD_S
from simcluster_backends.sockets.net.connection import Connection
from simcluster_backends.sockets.net.link import PeerLink
from simcluster_backends.sockets.net.listener import SocketListener, connect
from simcluster_backends.sockets.net.tls import Tls
from simcluster_backends.sockets.node.member import SocketMember
from simcluster_backends.sockets.wire.handshake import NEW, Handshake, PeerIdentity
from simcluster_backends.sockets.wire.reader import USUAL, FrameLimits

Address = tuple[str, int]
Addresses = Sequence[Address]


class Mesh:
    """The connections from *member* to each of its peers."""

    def __init__(
        self,
        member: SocketMember,
        key: bytes,
        run: bytes,
        config: bytes,
        limits: FrameLimits = USUAL,
        tls: Tls | None = None,
        dead_s: float = DEAD_S,
        *,
        shares: bool = True,
    ) -> None:
        self.member = member
        self._names = member.names
        self._key = key
        self._me = PeerIdentity("data", member.name, member.rank, run, config)
        self._dial = partial(connect, limits=limits, tls=tls)
        self._dead_s = dead_s
        self._shares = shares
        self._attached: dict[int, PeerLink] = {}  # for each rank, the link to its last incarnation
        self._addresses: dict[int, Address] = {}  # of peers that were present when this node joined
        self._expected: set[int] | None = None  # the other founders, once they are known
        self._connecting: dict[int, asyncio.Task[Connection]] = {}
        self._lost: dict[int, str] = {}
        self._complete = asyncio.Event()
        accept = partial(self._handshake, accepts=True, expected=range(member.rank + 1, len(self._names)))
        self.listener = SocketListener(accept, partial(self._attach, first=False), limits, tls)

    async def connect(self, addresses: Addresses, timeout_s: float, absent: Mapping[int, str] | None = None) -> None:
        """Connect to all lower ranks, and wait until all higher ranks have connected.

        *addresses* has the addresses of all ranks. *absent* maps the ranks to leave out to the
        reasons for their absence. Raise NeverFinished if peers are missing after *timeout_s*. Raise
        RunError, HandshakeRefused or ProtocolError if a peer is unreachable or refuses this node.
        """
        absent = absent or {}
        self._do_without(absent)
        self._expected = {rank for rank in range(len(self._names)) if rank not in absent} - {self.member.rank}
        self._addresses = {rank: addresses[rank] for rank in self._expected}
        lower = sorted(rank for rank in self._expected if rank < self.member.rank)
        connecting = [self._connect(rank, addresses[rank], timeout_s) for rank in lower]
        for outcome in await asyncio.gather(*connecting, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
        self._check_complete()
        try:
            async with asyncio.timeout(timeout_s):
                await self._complete.wait()
        except TimeoutError:
            missing = [rank for rank in sorted(self._expected) if rank not in self._attached]
            words = [f"rank {rank} ({self._names[rank]}) did not" for rank in missing]
            raise NeverFinished(
                f"{self.member.name} waited {timeout_s:g} s for its peers to connect",
                words + self.listener.dropped_in_words,
            ) from None

    async def come_late(
        self, incarnation: int, addresses: Addresses, gone: Mapping[int, str], timeout_s: float
    ) -> None:
        """Connect, as *incarnation*, to all nodes except *gone*, which maps ranks to reasons.

        Raise RunError, HandshakeRefused or ProtocolError as `connect` does. Do not wait for a peer
        that is lost meanwhile, or was lost just before: see `lose`.
        """
        gone = {**gone, **self._lost}
        self._me = replace(self._me, incarnation=incarnation)
        self._do_without(gone)
        there = [rank for rank in range(len(self._names)) if rank not in gone and rank != self.member.rank]
        self._addresses = {rank: addresses[rank] for rank in there}
        create = asyncio.create_task
        self._connecting = {rank: create(self._connect(rank, addresses[rank], timeout_s)) for rank in there}
        for outcome in await asyncio.gather(*self._connecting.values(), return_exceptions=True):
            if isinstance(outcome, Exception):  # not the CancelledError of a lost peer
                raise outcome

    def lose(self, rank: int, reason: str) -> None:
        """Stop waiting for a connection to *rank*, which is known to be gone."""
        self._lost[rank] = reason
        connecting = self._connecting.get(rank)
        if connecting is not None and not connecting.done():
            connecting.cancel()
            self._do_without({rank: reason})

    def _do_without(self, gone: Mapping[int, str]) -> None:
        """Mark the nodes *gone* as lost or not yet joined, before the algorithm begins."""
        for rank, reason in gone.items():
            if reason == ABSENT:
                self.member.inbox.misses_from_the_start(rank, reason)
            else:
                self.member.inbox.lose(rank, reason)

    def _connect(self, rank: int, address: Address, timeout_s: float) -> Coroutine[Any, Any, Connection]:
        handshake = partial(self._handshake, accepts=False, expected=[rank])
        return self._dial(*address, handshake, timeout_s=timeout_s, on_open=partial(self._attach, first=True))

    async def _dial_again(self, link: PeerLink) -> None:
        """Dial the peer of the broken *link* again, at its known address."""

        def handshake() -> Handshake:
            me = replace(self._me, taken=link.taken)
            return Handshake(self._key, me, accepts=False, admit=lambda peer: self._other_than(link, peer))

        resumed = partial(self._attach, first=True)
        address = self._addresses[link.peer.rank]
        await self._dial(*address, handshake, timeout_s=self._dead_s, on_open=resumed, was_there=True)

    def _handshake(self, *, accepts: bool, expected: Sequence[int]) -> Handshake:
        def admit(peer: PeerIdentity) -> str | None:
            rank = peer.rank
            known = 0 <= rank < len(self._names) and rank != self.member.rank and self._names[rank] == peer.name
            if accepts and peer.taken != NEW:
                return self._may_not_resume(peer)
            begins = rank in expected and (self._expected is None or rank in self._expected or not accepts)
            if not known or not (begins or (accepts and peer.incarnation)):
                return f"rank {rank} ({peer.name}) is no peer of rank {self.member.rank}"
            if peer.incarnation <= self._incarnation(rank):
                return f"the name {peer.name!r} is taken"
            return None

        yields = lambda peer: self._attached[peer.rank].yields()  # noqa: E731
        return Handshake(self._key, self._me, accepts=accepts, admit=admit, yields=yields)

    def _incarnation(self, rank: int) -> int:
        """Return the last connected incarnation of *rank*; -1 if there was none."""
        return self._attached[rank].peer.incarnation if rank in self._attached else -1

    def _may_not_resume(self, peer: PeerIdentity) -> str | None:
        """Return the reason for which *peer* may not resume its connection; None if it may."""
        link = self._attached.get(peer.rank)
        if link is None:
            return f"there is no connection of rank {peer.rank} ({peer.name}) to resume"
        return self._other_than(link, peer) or link.refusal(peer.taken)

    def _other_than(self, link: PeerLink, peer: PeerIdentity) -> str | None:
        """Return a refusal if *peer* is not the peer of *link*, or None if it is."""
        known = link.peer
        if (peer.rank, peer.name, peer.incarnation) == (known.rank, known.name, known.incarnation):
            return None
        return f"{peer.name!r} in life {peer.incarnation} cannot resume for {known.name!r} in life {known.incarnation}"

    def _attach(self, connection: Connection, *, first: bool) -> None:
        """Use *connection*. With *first*, this end has dialled, and dials first after a break."""
        peer = connection.peer
        rank = peer.rank
        if peer.taken != NEW:
            self._attached[rank].resume(connection, peer.taken)
            return
        if peer.incarnation <= self._incarnation(rank):  # two were admitted at once: keep the first
            connection.abort("the name is taken")
            return
        dial = self._dial_again if rank in self._addresses else None
        link = PeerLink(
            connection,
            dead_s=self._dead_s,
            keeps_bytes=self.member.inbox_bytes,
            dial=dial,
            first=first,
            digests=self.member.notes is not None,
            shares=self._shares,
        )
        self._attached[rank] = link
        self.member.attach(rank, link)
        self._check_complete()

    def _check_complete(self) -> None:
        if self._expected is not None and self._expected <= self._attached.keys():
            self._complete.set()
