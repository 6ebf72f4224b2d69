"""Crowds at ports that speak TLS: silent before it, in the midst of it and after it, and all of them are dropped."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from simcluster_backends.sockets.net import connection as connection_module
from simcluster_backends.sockets.net import listener as listener_module
from simcluster_backends.sockets.net.addresses import open_socket
from simcluster_backends.sockets.net.certificates import make_certificates
from simcluster_backends.sockets.net.connection import Connection
from simcluster_backends.sockets.net.listener import SocketListener
from simcluster_backends.sockets.net.tls import read_tls
from simcluster_backends.sockets.wire.handshake import Handshake, PeerIdentity

KEY = b"k" * 32
LIMIT = 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("certificates")
    make_certificates(made, ["a", "b"], 1, [])
    return made


def run_on(loop: str, main: Coroutine[Any, Any, None]) -> None:
    if loop == "asyncio":
        asyncio.run(main)
        return
    uvloop = pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


class Stranger:
    """A TCP client that speaks TLS as far as *stage* says, and then never again: it does not even close."""

    def __init__(self, port: int, context: ssl.SSLContext, stage: str) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing)
        self._stage = stage

    async def behave(self) -> None:
        if self._stage == "tcp":
            return
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                hello = self._outgoing.read()
                await self._loop.sock_sendall(self.sock, hello[:50] if self._stage == "half a hello" else hello)
                if self._stage in ("half a hello", "hello"):
                    return
                self._incoming.write(await self._loop.sock_recv(self.sock, 65536))
                continue
            await self._loop.sock_sendall(self.sock, self._outgoing.read())
            if self._stage == "wrong words":
                self._tls.write(b"GET / HTTP/1.1\r\n\r\n")
                await self._loop.sock_sendall(self.sock, self._outgoing.read())
            return

    async def is_dropped(self) -> None:
        """Return when the other end has closed, without a word to it."""
        while True:
            try:
                if not await self._loop.sock_recv(self.sock, 65536):
                    return
            except ConnectionError:
                return


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("stage", ["tcp", "half a hello", "hello", "tls", "wrong words"])
def test_of_a_crowd_that_says_nothing_more_nobody_stays(
    folder: Path, monkeypatch: pytest.MonkeyPatch, stage: str, loop: str
) -> None:
    monkeypatch.setattr(listener_module, "PENDING_LIMIT", LIMIT)
    for module in (listener_module, connection_module):
        monkeypatch.setattr(module, "HANDSHAKE_TIMEOUT_S", 0.3)

    async def main() -> None:
        joined: list[Connection] = []
        listener = SocketListener(
            lambda: Handshake(KEY, PeerIdentity("data", "a", 0), accepts=True), joined.append, tls=read_tls(folder, "a")
        )
        await listener.start(open_socket("127.0.0.1", 0, "listen"))
        client = read_tls(folder, "b")
        crowd = [Stranger(listener.port, client.client, stage) for _ in range(3 * LIMIT)]
        try:
            await asyncio.gather(*(stranger.behave() for stranger in crowd), return_exceptions=True)
            async with asyncio.timeout(20.0):  # a shutdown of TLS that waits for its answer takes 30 s
                await asyncio.gather(*(stranger.is_dropped() for stranger in crowd))
            assert joined == []
        finally:
            for stranger in crowd:
                stranger.sock.close()
            await listener.close()

    run_on(loop, main())
