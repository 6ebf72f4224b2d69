"""Limits on slow clients: how long the service waits for a request, and for how many at once.

Uvicorn itself waits forever for an unfinished request, and for a body that is no longer needed.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from simcluster_backends.sockets.net.addresses import show_endpoint
from simcluster_backends.sockets.net.tls import in_words

ASK_S = 5.0
"""The time in which a client must send a request's head, after it connects or has an answer."""

ANSWER_S = 30.0
"""The time in which a client must send a request's body and receive the answer.

After this time, the client is dropped if the service is waiting for the client. If the client is
waiting for the service, for example for the next part of a stream, the time starts again.
"""

ASKING_LIMIT = 64
"""The limit on connections without a complete request.

Beyond this limit, each new connection drops the oldest. An honest client sends its request at once,
so strangers cannot lock it out, however many connections they open.
"""

LOGGED = 5


class StrangerFilter(logging.Filter):
    """A log filter that passes the first LOGGED warnings, then the 10th, the 100th and so on."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno > logging.WARNING:
            return True
        self.count += 1
        if self.count == LOGGED:
            record.msg = f"{record.msg} (more are only counted)"
        elif self.count > LOGGED:
            record.msg = f"{record.msg} ({self.count} so far)"
        return self.count <= LOGGED or str(self.count).strip("0") == "1"


class TimedConnection(H11Protocol):
    """A connection that is dropped at a deadline. `patient_protocol` derives a class per service.

    *asking* has all connections of the service without a complete request, the oldest first.
    """

    asking: dict[TimedConnection, None]
    most_asking: int
    few: logging.Logger
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.logger = self.few
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self in self.asking and self._is_answered:
            self._wait()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self.asking.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    @property
    def _is_answered(self) -> bool:
        """Whether a request is still being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self) -> None:
        """Restart the deadline for the current answer, or else for the next request."""
        if self._deadline is not None:
            self._deadline.cancel()
        self.asking.pop(self, None)
        if not self._is_answered:
            self.asking[self] = None
            if len(self.asking) > self.most_asking:
                oldest = next(iter(self.asking))
                # Remove it now: `connection_lost` comes later, and more connections may come first.
                del self.asking[oldest]
                oldest.drop()
        self._deadline = self.loop.call_later(ANSWER_S if self._is_answered else ASK_S, self._late)

    @property
    def _waits_for_us(self) -> bool:
        """Whether the client has sent its request and taken all of the answer so far."""
        return self._is_answered and not self.cycle.more_body and not self.transport.get_write_buffer_size()

    def _late(self) -> None:
        if self._waits_for_us:
            self._wait()
        else:
            self.drop()

    def drop(self) -> None:
        """End the connection immediately, whatever the other end does."""
        self.transport.abort()


class TimedTlsConnection(TimedConnection):
    """A TimedConnection over TLS. The limits also apply to the TLS handshake.

    asyncio's own server with an SSL context would start any number of handshakes with strangers,
    and wait a minute for each.
    """

    secure: ssl.SSLContext
    _early = b""  # data that arrives before `_secure` knows that the handshake is done
    _is_secure = False
    _securing: asyncio.Task[None] | None = None
    _tcp: asyncio.Transport | None = None

    def drop(self) -> None:
        """Abort TLS and the TCP connection below it: a closing TLS transport does not abort TCP."""
        super().drop()
        if self._tcp is not None:
            self._tcp.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = self._tcp = transport
        # Incoming bytes belong to TLS, which starts in the loop's next turn: leave them unread.
        transport.pause_reading()
        self._wait()
        self._securing = self.loop.create_task(self._secure(transport))

    def data_received(self, data: bytes) -> None:
        if self._is_secure:
            super().data_received(data)
        else:
            self._early += data

    def connection_lost(self, exc: Exception | None) -> None:
        if self._securing is not None:
            self._securing.cancel()
        super().connection_lost(exc)

    async def _secure(self, transport: asyncio.Transport) -> None:
        secured: Any = None
        try:
            secured = await self.loop.start_tls(
                transport, self, self.secure, server_side=True, ssl_handshake_timeout=ASK_S
            )
        except OSError as error:
            peer = show_endpoint(*transport.get_extra_info("peername")[:2])
            self.few.warning("dropped %s: %s", peer, in_words(error))
        if secured is None:  # the connection was lost during the handshake
            self.asking.pop(self, None)
            return
        self._securing, self._is_secure = None, True
        super().connection_made(secured)
        if self._early:
            self.data_received(self._early)


def patient_protocol(secure: ssl.SSLContext | None = None, most_asking: int = ASKING_LIMIT) -> type[asyncio.Protocol]:
    """Return a new class for the connections of one service, over TLS if *secure* is given.

    *most_asking* replaces ASKING_LIMIT.
    """
    few = logging.Logger("uvicorn.error", logging.WARNING)
    few.parent = logging.getLogger("uvicorn.error")
    few.addFilter(StrangerFilter())
    kind = TimedConnection if secure is None else TimedTlsConnection
    return type("ServicePatient", (kind,), {"asking": {}, "most_asking": most_asking, "few": few, "secure": secure})
