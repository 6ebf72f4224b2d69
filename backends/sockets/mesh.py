"""The data lane: one authenticated connection between each pair of nodes of a run.

This file knows ranks, names and addresses. It must not know processes, launchers or messages.

Of two nodes the one with the higher rank connects and the other accepts, so each pair gets one connection.
The listener stays open while the run goes on; whoever comes then is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from backends.sockets.connection import Connection
from backends.sockets.framing import Limits
from backends.sockets.handshake import Handshake, Identity
from backends.sockets.listener import Listener, connect
from backends.sockets.tls import Tls
from backends.sockets.transport import SocketTransport
from simcluster.errors import NeverFinished


class Mesh:
    """Gives *transport* a connection to each of its peers."""

    def __init__(
        self,
        transport: SocketTransport,
        names: Sequence[str],
        key: bytes,
        run: bytes,
        config: bytes,
        limits: Limits | None = None,
        tls: Tls | None = None,
    ) -> None:
        self.transport, self.names = transport, names
        self._key = key
        self._me = Identity("data", transport.name, transport.rank, run, config)
        self._limits, self._tls = limits or Limits(), tls
        self._attached: set[int] = set()
        self._complete = asyncio.Event()
        self.listener = Listener(self._accept_handshake, self._attach, self._limits, tls)
        if len(names) == 1:
            self._complete.set()

    async def connect(self, addresses: Sequence[tuple[str, int]], timeout_s: float) -> None:
        """Connects to all lower ranks and waits for all higher ones.

        *addresses* are those of all ranks. Raises NeverFinished naming who is missing after *timeout_s*;
        RunError, HandshakeRefused or ProtocolError if somebody cannot be reached or will not have this node.
        """
        connecting = [
            connect(
                *addresses[rank],
                lambda rank=rank: self._handshake(accepts=False, expected=[rank]),  # type: ignore[misc]
                on_open=self._attach,
                timeout_s=timeout_s,
                limits=self._limits,
                tls=self._tls,
            )
            for rank in range(self.transport.rank)
        ]
        for outcome in await asyncio.gather(*connecting, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
        try:
            async with asyncio.timeout(timeout_s):
                await self._complete.wait()
        except TimeoutError:
            missing = [rank for rank in self.transport.peers if rank not in self._attached]
            words = [f"rank {rank} ({self.names[rank]}) did not" for rank in missing]
            raise NeverFinished(
                f"{self.transport.name} waited {timeout_s:g} s for its peers to connect",
                words + self.listener.dropped_in_words,
            ) from None

    async def close(self) -> None:
        await self.listener.close()

    def _accept_handshake(self) -> Handshake:
        return self._handshake(accepts=True, expected=range(self.transport.rank + 1, len(self.names)))

    def _handshake(self, *, accepts: bool, expected: Sequence[int]) -> Handshake:
        def admit(peer: Identity) -> str | None:
            if peer.rank not in expected or self.names[peer.rank] != peer.name:
                return f"rank {peer.rank} ({peer.name}) has no business with rank {self.transport.rank}"
            if peer.rank in self._attached:
                return f"the name {peer.name!r} is taken"
            return None

        return Handshake(self._key, self._me, accepts=accepts, admit=admit)

    def _attach(self, connection: Connection) -> None:
        rank = connection.peer.rank
        if rank in self._attached:  # two at once, both admitted: the first one stays
            connection.abort("the name is taken")
            return
        self._attached.add(rank)
        self.transport.attach(rank, connection)
        if len(self._attached) == len(self.names) - 1:
            self._complete.set()
