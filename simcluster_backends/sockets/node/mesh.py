"""The data lane: one authenticated connection between each pair of nodes of a run.

Of two nodes that begin with the run the one with the higher rank connects and the other accepts, so each pair gets one
connection. The listener stays open while the run goes on. Whoever comes late, or again, connects to all that are there;
it has a higher incarnation than any that was there under its name before, or is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any

from simcluster.errors import ABSENT, NeverFinished
from simcluster_backends.sockets.net.connection import Connection
from simcluster_backends.sockets.net.listener import Listener, connect
from simcluster_backends.sockets.net.tls import Tls
from simcluster_backends.sockets.node.member import Member
from simcluster_backends.sockets.wire.handshake import Handshake, Identity
from simcluster_backends.sockets.wire.reader import Limits


class Mesh:
    """Gives *member* a connection to each of its peers."""

    def __init__(
        self,
        member: Member,
        names: Sequence[str],
        key: bytes,
        run: bytes,
        config: bytes,
        limits: Limits | None = None,
        tls: Tls | None = None,
    ) -> None:
        self.member, self.names = member, names
        self._key = key
        self._me = Identity("data", member.name, member.rank, run, config)
        self._limits, self._tls = limits or Limits(), tls
        self._attached: dict[int, int] = {}  # by rank: the incarnation that there is a connection to
        self._expected: set[int] | None = None  # those that begin with the run, once that is known
        self._connecting: dict[int, asyncio.Task[Connection]] = {}
        self._lost: dict[int, str] = {}
        self._complete = asyncio.Event()
        self.listener = Listener(self._accept_handshake, self._attach, self._limits, tls)

    async def connect(
        self, addresses: Sequence[tuple[str, int]], timeout_s: float, absent: Mapping[int, str] | None = None
    ) -> None:
        """Connects to all lower ranks and waits for all higher ones, but for those that are *absent*, and why.

        *addresses* are those of all ranks. Raises NeverFinished naming who is missing after *timeout_s*;
        RunError, HandshakeRefused or ProtocolError if somebody cannot be reached or will not have this node.
        """
        absent = absent or {}
        self._do_without(absent)
        self._expected = {rank for rank in range(len(self.names)) if rank not in absent} - {self.member.rank}
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
            words = [f"rank {rank} ({self.names[rank]}) did not" for rank in missing]
            raise NeverFinished(
                f"{self.member.name} waited {timeout_s:g} s for its peers to connect",
                words + self.listener.dropped_in_words,
            ) from None

    async def come_late(
        self, incarnation: int, addresses: Sequence[tuple[str, int]], gone: Mapping[int, str], timeout_s: float
    ) -> None:
        """Connects, as this *incarnation*, to all that are there: all but those that are *gone*, and why.

        Raises as `connect` does. A peer that is lost meanwhile, or just before (see `lose`), is not waited for.
        """
        gone = {**gone, **self._lost}
        self._me = replace(self._me, incarnation=incarnation)
        self._do_without(gone)
        there = [rank for rank in range(len(self.names)) if rank not in gone and rank != self.member.rank]
        self._connecting = {
            rank: asyncio.create_task(self._connect(rank, addresses[rank], timeout_s)) for rank in there
        }
        for outcome in await asyncio.gather(*self._connecting.values(), return_exceptions=True):
            if isinstance(outcome, Exception):  # whom it was told not to wait for is only cancelled
                raise outcome

    def lose(self, rank: int, reason: str) -> None:
        """Somebody who knows says that *rank* is gone: no connection to it is waited for any more."""
        self._lost[rank] = reason
        connecting = self._connecting.get(rank)
        if connecting is not None and not connecting.done():
            connecting.cancel()
            self._do_without({rank: reason})

    async def close(self) -> None:
        await self.listener.close()

    def _do_without(self, gone: Mapping[int, str]) -> None:
        """Before the algorithm begins: these were lost before, or have not joined yet."""
        for rank, reason in gone.items():
            if reason == ABSENT:
                self.member.inbox.misses_from_the_start(rank, reason)
            else:
                self.member.inbox.lose(rank, reason)

    def _connect(self, rank: int, address: tuple[str, int], timeout_s: float) -> Coroutine[Any, Any, Connection]:
        return connect(
            *address,
            lambda: self._handshake(accepts=False, expected=[rank]),
            on_open=self._attach,
            timeout_s=timeout_s,
            limits=self._limits,
            tls=self._tls,
        )

    def _accept_handshake(self) -> Handshake:
        return self._handshake(accepts=True, expected=range(self.member.rank + 1, len(self.names)))

    def _handshake(self, *, accepts: bool, expected: Sequence[int]) -> Handshake:
        def admit(peer: Identity) -> str | None:
            rank = peer.rank
            known = 0 <= rank < len(self.names) and rank != self.member.rank and self.names[rank] == peer.name
            begins = rank in expected and (self._expected is None or rank in self._expected or not accepts)
            if not known or not (begins or (accepts and peer.incarnation)):
                return f"rank {rank} ({peer.name}) has no business with rank {self.member.rank}"
            if peer.incarnation <= self._attached.get(rank, -1):
                return f"the name {peer.name!r} is taken"
            return None

        return Handshake(self._key, self._me, accepts=accepts, admit=admit)

    def _attach(self, connection: Connection) -> None:
        rank, incarnation = connection.peer.rank, connection.peer.incarnation
        if incarnation <= self._attached.get(rank, -1):  # two at once, both admitted: the first one stays
            connection.abort("the name is taken")
            return
        self._attached[rank] = incarnation
        self.member.attach(rank, connection)
        self._check_complete()

    def _check_complete(self) -> None:
        if self._expected is not None and self._expected <= self._attached.keys():
            self._complete.set()
