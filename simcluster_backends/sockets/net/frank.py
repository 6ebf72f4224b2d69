"""TLS that says why it refuses: what ends a handshake goes to the peer before the connection is closed.

Event loops close a connection whose handshake fails at once, and the alert that OpenSSL has made for the peer is lost
with it. So here a handshake that has failed looks as if it waited for more, which makes the loop send what there is.
The peer reads it and closes, or the loop's own time limit ends it; meanwhile nothing that comes is kept.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

ALERT = bytes((21, 3, 3, 0, 2, 2, 70))
"""A record of TLS: fatal, protocol version. OpenSSL has none for whoever does not speak TLS at all."""

HTTP = (
    b"HTTP/1.1 426 Upgrade Required\r\nUpgrade: TLS/1.3\r\nConnection: close\r\n"
    b"Content-Length: 21\r\n\r\nthis port speaks TLS\n"
)
LAST_WORDS = {"WRONG_VERSION_NUMBER": ALERT, "HTTP_REQUEST": HTTP}


class Refusal:
    """Why a handshake of TLS has failed, if it has: what was found first."""

    error: ssl.SSLError | None = None


_refusal: ContextVar[Refusal | None] = ContextVar("_refusal", default=None)


@contextmanager
def noting() -> Iterator[Refusal]:
    """What becomes of the handshake that begins inside; an event loop's callbacks inherit this."""
    refusal = Refusal()
    token = _refusal.set(refusal)
    try:
        yield refusal
    finally:
        _refusal.reset(token)


class _Frank(ssl.SSLObject):
    """One connection."""

    incoming: ssl.MemoryBIO
    outgoing: ssl.MemoryBIO
    _failed = False

    def do_handshake(self) -> None:
        if self._failed:
            self.incoming.read()  # nobody wants it, and a stranger may send without end
            raise ssl.SSLWantReadError
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            if (refusal := _refusal.get()) is not None and refusal.error is None:
                refusal.error = error
            self.outgoing.write(LAST_WORDS.get(str(error.reason), b""))
            if not self.outgoing.pending:
                raise
            self._failed = True
            raise ssl.SSLWantReadError from None


class FrankContext(ssl.SSLContext):
    """A context whose connections say why they refuse."""

    sslobject_class = _Frank

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        made = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        assert isinstance(made, _Frank)
        made.incoming, made.outgoing = incoming, outgoing
        return made
