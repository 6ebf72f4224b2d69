"""Limits on slow clients: how long the service waits for a request, and for how many clients at once.

Uvicorn waits forever for an unfinished request, and for a body that is no longer wanted.
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
"""Until the head of a request is complete: since the connection, or since the last answer."""

ANSWER_S = 30.0
"""Until a client has sent a body or taken an answer, as often as the service waits for it: with a token both may be
long. A client waits for an answer as long as it likes, as for the next part of a stream.
"""

ASKING_LIMIT = 64
"""Connections without a complete request. One more drops the oldest: honest clients have long asked by then, so
strangers keep none of them out, however many they are.
"""

LOGGED = 5


class StrangerFilter(logging.Filter):
    """Logs the first few actions of strangers, and then every power of ten."""

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
    """A connection that is dropped when its time is up. `patient_protocol` derives a service's class from it."""

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
        """Restart the deadline, for a request or its answer."""
        if self._deadline is not None:
            self._deadline.cancel()
        self.asking.pop(self, None)
        if not self._is_answered:
            self.asking[self] = None
            if len(self.asking) > self.most_asking:
                oldest = next(iter(self.asking))
                del self.asking[oldest]  # its loss is reported later, and the next one may come before that
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
    """The same over TLS, including its handshake in the limits.

    A server with a context would begin any number of handshakes with strangers, and wait a minute for each.
    """

    secure: ssl.SSLContext
    _early = b""  # received with the end of the handshake
    _is_secure = False
    _securing: asyncio.Task[None] | None = None
    _tcp: asyncio.Transport | None = None

    def drop(self) -> None:
        """Abort TLS and the TCP connection below it: a TLS transport already closing does not pass an abort on."""
        super().drop()
        if self._tcp is not None:
            self._tcp.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = self._tcp = transport
        transport.pause_reading()  # incoming bytes are for TLS, which begins in the loop's next turn
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
        if secured is None:  # gone meanwhile
            self.asking.pop(self, None)
            return
        self._securing, self._is_secure = None, True
        super().connection_made(secured)
        if self._early:
            self.data_received(self._early)


def patient_protocol(secure: ssl.SSLContext | None = None, most_asking: int = ASKING_LIMIT) -> type[asyncio.Protocol]:
    """Return the class of one service's connections, over TLS by *secure* if given; *most_asking* as ASKING_LIMIT."""
    few = logging.Logger("uvicorn.error", logging.WARNING)
    few.parent = logging.getLogger("uvicorn.error")
    few.addFilter(StrangerFilter())
    kind = TimedConnection if secure is None else TimedTlsConnection
    return type("ServicePatient", (kind,), {"asking": {}, "most_asking": most_asking, "few": few, "secure": secure})
