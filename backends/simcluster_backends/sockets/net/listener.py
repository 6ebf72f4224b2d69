"""Open connections from both sides: a listener that requires a handshake, and `connect`."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import deque
from collections.abc import Callable
from functools import partial

from simcluster.errors import HandshakeRefused, ProtocolError, RunError
from simcluster_backends.common.event_loop import KEEPER
from simcluster_backends.sockets.net.addresses import show_endpoint
from simcluster_backends.sockets.net.connection import HANDSHAKE_TIMEOUT_S, LAST_WORD_S, Connection
from simcluster_backends.sockets.net.tls import ClosedUnread, Tls, in_words
from simcluster_backends.sockets.wire.handshake import RUN_IS_OVER, Handshake
from simcluster_backends.sockets.wire.reader import USUAL, FrameLimits

PENDING_LIMIT = 64
"""The limit on connections with an unfinished handshake. More are dropped unread; nodes retry."""

LOGGED = 5
"""The number of dropped strangers that are logged one by one.

More are only counted, so that they cannot fill a disk.
"""

TOO_MANY = "too many connections that have not finished their handshake"
BACKLOG = 100
RETRY_S = 0.1
REFUSALS = 3
"""The refusals in a row after which `connect` gives up: one may be a chance reset."""
UNSECURED = 600
"""The connections in a row, closed before TLS, after which `connect` gives up: a minute of retries.

A peer with too many pending connections also closes new ones, but not for a minute.
"""

log = logging.getLogger("simcluster.sockets")


class SocketListener:
    """A listener that calls *on_open* with each connection that passes the handshake.

    It drops and logs all others.
    """

    def __init__(
        self,
        make_handshake: Callable[[], Handshake],
        on_open: Callable[[Connection], None],
        limits: FrameLimits = USUAL,
        tls: Tls | None = None,
    ) -> None:
        self.host = ""
        self.port = 0
        self._loop = asyncio.get_running_loop()
        self._make_handshake = make_handshake
        self._on_open = on_open
        self._limits = limits
        self._tls = tls
        self.dropped: deque[str] = deque(maxlen=10)  # descriptions of the last dropped connections
        self.dropped_count = 0
        self._pending: dict[Connection, None] = {}
        self._server: asyncio.Server | None = None
        self._accepting: asyncio.Task[None] | None = None  # with TLS, instead of the server
        self._securing: set[asyncio.Task[None]] = set()

    @property
    def dropped_in_words(self) -> list[str]:
        """Descriptions of the last dropped connections, and the number of earlier ones."""
        earlier = self.dropped_count - len(self.dropped)
        return ([f"dropped {earlier} connections before these"] if earlier else []) + list(self.dropped)

    async def start(self, listening: socket.socket) -> None:
        """Accept connections from *listening*, made by `open_socket`, until `close` closes it."""
        self.host, self.port = listening.getsockname()[:2]
        if self._tls is None:
            self._server = await self._loop.create_server(self._accept, sock=listening)
            return
        listening.setblocking(False)
        listening.listen(BACKLOG)
        self._accepting = asyncio.create_task(self._accept_encrypted(listening, self._tls.server), name=KEEPER)

    async def close(self) -> None:
        """Stop listening, and abort pending handshakes. Opened connections stay open."""
        tasks = [*self._securing, *([self._accepting] if self._accepting is not None else [])]
        if self._server is not None:
            self._server.close()
        if (self._server is not None or self._accepting is not None) and self.dropped_count > LOGGED:
            log.warning("%d connections dropped in total before they joined", self.dropped_count)
        self._server = self._accepting = None
        for connection in list(self._pending):
            connection.abort("the listener was closed")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)

    def _accept(self) -> Connection:
        handshake, limits = self._make_handshake(), self._limits
        connection = Connection(handshake, on_open=self._opened, on_fail=self._failed, limits=limits)
        if len(self._pending) >= PENDING_LIMIT:
            connection.abort(TOO_MANY)
        else:
            self._pending[connection] = None
        return connection

    async def _accept_encrypted(self, listening: socket.socket, context: ssl.SSLContext) -> None:
        """Accept TLS connections, with a limit on handshakes that asyncio's server lacks."""
        with listening:
            while True:
                await asyncio.sleep(0)  # pending connections are accepted without waiting: let other tasks run
                try:
                    accepted, address = await self._loop.sock_accept(listening)
                except OSError:  # the peer is gone already, or no file descriptor is left
                    await asyncio.sleep(RETRY_S)
                    continue
                where = show_endpoint(*address[:2])
                if len(self._pending) >= PENDING_LIMIT:
                    accepted.close()
                    self._drop(f"dropped {where} before it joined: {TOO_MANY}")
                    continue
                connection = self._accept()
                securing = asyncio.create_task(self._secure(connection, accepted, where, context), name=KEEPER)
                self._securing.add(securing)
                securing.add_done_callback(partial(self._secured, connection, accepted))

    async def _secure(
        self, connection: Connection, accepted: socket.socket, address: str, context: ssl.SSLContext
    ) -> None:
        """Do the TLS handshake. The connection itself then does the handshake of wire.handshake."""
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=context,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
                ssl_shutdown_timeout=LAST_WORD_S,
            )
        except OSError as error:
            self._drop(f"dropped {address} before it joined: {in_words(error)}")

    def _secured(self, connection: Connection, accepted: socket.socket, securing: asyncio.Task[None]) -> None:
        self._securing.discard(securing)
        if not connection.is_made:
            self._pending.pop(connection, None)
            accepted.close()

    def _opened(self, connection: Connection) -> None:
        self._pending.pop(connection, None)
        self._on_open(connection)

    def _failed(self, connection: Connection, error: Exception) -> None:
        self._pending.pop(connection, None)
        if RUN_IS_OVER not in str(error):  # a node that is merely late is not worth a warning
            self._drop(f"dropped {connection.address} before it joined: {error}")

    def _drop(self, words: str) -> None:
        self.dropped.append(words)
        self.dropped_count = count = self.dropped_count + 1
        if count <= LOGGED:
            log.warning("%s%s", words, "; more are only counted" if count == LOGGED else "")
        elif str(count).strip("0") == "1":  # 10, 100, 1000, ...
            log.warning("%d connections dropped so far; the last one: %s", count, words)


async def connect(
    host: str,
    port: int,
    make_handshake: Callable[[], Handshake],
    *,
    on_open: Callable[[Connection], None],
    timeout_s: float,
    limits: FrameLimits = USUAL,
    tls: Tls | None = None,
    was_there: bool = False,
) -> Connection:
    """Return a connection after its handshake; *on_open* is called with it before its first frame.

    Retry for *timeout_s* if there is no answer, or if the peer closes the connection, as it does
    with too many pending connections. Then raise RunError or HandshakeRefused.

    Raise HandshakeRefused or ProtocolError at once if retries cannot help. With TLS, that includes
    REFUSALS connections in a row that the peer closed after it had seen this node's certificate,
    and UNSECURED connections in a row that it closed before the TLS handshake was done. Raise RunError
    at once if the peer *was_there* before and now refuses connections: its process is gone.
    """
    unread = unsecured = 0
    loop = asyncio.get_running_loop()
    where, end_s = show_endpoint(host, port), loop.time() + timeout_s
    secure = tls.client if tls is not None else None

    async def once() -> Connection:
        opened: asyncio.Future[Connection] = loop.create_future()

        def succeed(connection: Connection) -> None:
            on_open(connection)
            if not opened.done():
                opened.set_result(connection)

        def fail(connection: Connection, error: Exception) -> None:
            if not opened.done():
                opened.set_exception(error)

        connection = Connection(make_handshake(), on_open=succeed, on_fail=fail, limits=limits)
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                await loop.create_connection(lambda: connection, host, port, ssl=secure)
            return await opened
        finally:
            if opened.done() and not opened.cancelled():
                opened.exception()
            if not connection.is_open:
                connection.reset("given up")

    while True:
        try:
            return await once()
        except ssl.SSLError as error:
            raise HandshakeRefused(f"{where}: {in_words(error)}") from None
        except OSError as error:
            reason = in_words(error)
            unread = unread + 1 if isinstance(error, ClosedUnread) else 0
            is_closed = isinstance(error, ConnectionResetError) and not isinstance(error, ClosedUnread)
            unsecured = unsecured + 1 if is_closed and secure is not None else 0
            if unread == REFUSALS or unsecured == UNSECURED:
                raise HandshakeRefused(f"{where}: {reason}") from None
            if was_there and isinstance(error, ConnectionRefusedError):
                raise RunError(f"nothing listens at {where} any more: {reason}") from None
            if loop.time() + RETRY_S > end_s:
                if isinstance(error, ConnectionResetError):
                    raise HandshakeRefused(f"{where}: {reason}") from None
                raise RunError(f"no answer from {where} within {timeout_s:g} s: {reason}") from None
        except (HandshakeRefused, ProtocolError) as error:
            raise type(error)(f"{where}: {error}") from None
        await asyncio.sleep(RETRY_S)
