"""The handshake, in which both sides prove that they know a shared key, as a state machine.

    connector                                   acceptor
        Hello(nonce, who I am)        ->
                                      <-        Hello(nonce, who I am), Proof
        Proof                         ->
                                      <-        Welcome(frames taken), or HandshakeRefusal(reason)

A proof is an HMAC-SHA256 under the shared key. It covers the prover's role and both hellos in full:
nonces, lane, run, versions, names, incarnations and the configuration's hash. So none of them can
be altered in transit, and no proof can be replayed or reflected. A peer that cannot prove the key
learns nothing else: all other problems, except different versions, are reported only to peers that
have proven it. The frames after the handshake are numbered and checksummed but not signed: the key
controls who may join, not the traffic. On a network that others can write to, use TLS or a tunnel.

To resume a broken connection, the connector states in its Hello how many frames it has taken, and
the acceptor in its Welcome. Each side then resends the frames after that number.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace

import msgspec

from simcluster import __version__
from simcluster.errors import HandshakeRefused, ProtocolError
from simcluster_backends.sockets.wire.frame import decode
from simcluster_backends.sockets.wire.protocol import PROTOCOL_VERSION

NONCE_BYTES = 32
NAME_LIMIT_BYTES = 64
REASON_LIMIT_BYTES = 180
AUTHENTICATION_FAILED = "authentication failed"
RUN_IS_OVER = "the run is over"
NEW = -1
"""The value of *taken* on a new connection, which resumes none."""


@dataclass(frozen=True, slots=True)
class PeerIdentity:
    """The identity of one end of a connection, on a *lane*, "control" or "data", of a *run*.

    The launcher's rank is -1. *run* and *config* are b"" while a node cannot know them yet.
    *incarnation* counts the restarts of the node in this run. *taken* is the number of frames that
    this end has taken on the connection that it resumes, or NEW.
    """

    lane: str
    name: str
    rank: int = -1
    run: bytes = b""
    config: bytes = b""
    incarnation: int = 0
    taken: int = NEW


class Hello(msgspec.Struct, array_like=True, tag=1, frozen=True):
    nonce: bytes
    package: str
    lane: str
    name: str
    rank: int
    run: bytes
    config: bytes
    incarnation: int = 0
    taken: int = NEW


class Proof(msgspec.Struct, array_like=True, tag=2, frozen=True):
    mac: bytes


class Welcome(msgspec.Struct, array_like=True, tag=3, frozen=True):
    taken: int = NEW


class HandshakeRefusal(msgspec.Struct, array_like=True, tag=4, frozen=True):
    reason: str


HandshakeMessage = Hello | Proof | Welcome | HandshakeRefusal
_decoder: msgspec.msgpack.Decoder[HandshakeMessage] = msgspec.msgpack.Decoder(HandshakeMessage)
_encoder = msgspec.msgpack.Encoder()

Admit = Callable[[PeerIdentity], str | None]
"""A function that returns the reason for which a proven peer may not join, or None if it may."""

Yields = Callable[[PeerIdentity], int]
"""A function that ends the old connection to a proven peer that resumes.

It returns the number of frames taken on the old connection.
"""


class Handshake:
    """One side of a handshake, without I/O: `receive` takes headers, `to_send` returns headers.

    `receive` raises HandshakeRefused if either side refuses, or ProtocolError. `to_send` may then
    still have a last message for the peer. *peer* is set, and *done* is true, once both sides have
    proven the key and Welcome has been sent or received.
    """

    def __init__(
        self,
        key: bytes,
        me: PeerIdentity,
        *,
        accepts: bool,
        admit: Admit | None = None,
        package: str = __version__,
        yields: Yields | None = None,
    ) -> None:
        assert len(me.name.encode()) <= NAME_LIMIT_BYTES, f"the name {me.name!r} is too long"
        self._key = key
        self._accepts = accepts
        self._admit = admit
        self._yields = yields
        self.me = me
        self.peer: PeerIdentity | None = None
        self.done = False
        self.certified: frozenset[str] | None = None  # names in the peer's certificate; None without TLS
        self._package = package
        self._hello = _encoder.encode(Hello(secrets.token_bytes(NONCE_BYTES), package, *astuple(me)))
        self._their_hello = b""
        self._their_identity: PeerIdentity | None = None
        self._out: list[bytes] = [] if accepts else [self._hello]
        self._expects: type[HandshakeMessage] = Hello

    def to_send(self) -> list[bytes]:
        """Return, and forget, the headers of the handshake frames to send now."""
        out, self._out = self._out, []
        return out

    def receive(self, header: bytes) -> bool:
        """Process the header of a handshake frame; return `done`."""
        message = decode(_decoder, header, "a handshake message")
        if isinstance(message, HandshakeRefusal):
            raise HandshakeRefused(f"refused by the peer: {message.reason[:REASON_LIMIT_BYTES]!r}")
        if not isinstance(message, self._expects):
            raise ProtocolError(f"a {type(message).__name__} where {self._expects.__name__} was expected")
        if isinstance(message, Hello):
            self._receive_hello(message, header)
        elif isinstance(message, Proof):
            self._receive_proof(message)
        elif isinstance(message, Welcome):
            self._receive_welcome(message)
        return self.done

    def refuse(self, reason: str) -> HandshakeRefused:
        """Queue a refusal with *reason* for the peer; return the error to raise here."""
        short = reason.encode()[:REASON_LIMIT_BYTES].decode(errors="ignore")
        self._out.append(_encoder.encode(HandshakeRefusal(short)))
        return HandshakeRefused(reason)

    def _receive_hello(self, hello: Hello, encoded: bytes) -> None:
        if hello.package != self._package:
            raise self.refuse(
                f"simcluster {hello.package[:20]!r} cannot talk to {self._package!r}: "
                "install the same version on every node"
            )
        if len(hello.nonce) != NONCE_BYTES or len(hello.name.encode()) > NAME_LIMIT_BYTES:
            raise ProtocolError("a hello with a nonce or name of the wrong length")
        self._their_hello = encoded
        self._their_identity = PeerIdentity(
            hello.lane, hello.name, hello.rank, hello.run, hello.config, hello.incarnation, hello.taken
        )
        if self._accepts:
            self._out += [self._hello, _encoder.encode(Proof(self._mac(acceptor=True)))]
        self._expects = Proof

    def _receive_proof(self, proof: Proof) -> None:
        if not hmac.compare_digest(proof.mac, self._mac(acceptor=not self._accepts)):
            raise self.refuse(AUTHENTICATION_FAILED)
        assert self._their_identity is not None
        if (reason := self._objection(self._their_identity)) is not None:
            raise self.refuse(reason)
        if self._accepts:
            them = self._their_identity
            taken = self._yields(them) if self._yields is not None and them.taken != NEW else NEW
            self._out.append(_encoder.encode(Welcome(taken)))
            self.peer, self.done = them, True
        else:
            self._out.append(_encoder.encode(Proof(self._mac(acceptor=False))))
            self._expects = Welcome

    def _receive_welcome(self, welcome: Welcome) -> None:
        assert self._their_identity is not None
        if (welcome.taken == NEW) != (self.me.taken == NEW):
            raise ProtocolError(f"welcomed with {welcome.taken} frames taken, having said {self.me.taken}")
        self.peer, self.done = replace(self._their_identity, taken=welcome.taken), True

    def _objection(self, them: PeerIdentity) -> str | None:
        me, certified = self.me, self.certified
        if certified is not None and them.name not in certified:
            return f"the certificate is that of {', '.join(sorted(certified)) or 'no node'}, not of {them.name!r}"
        if them.lane != me.lane:
            return f"this is the {me.lane} lane, not {them.lane[:20]!r}"
        if me.run and them.run and them.run != me.run:
            return "another run"
        if me.config != them.config:
            return "another configuration of the run"
        return self._admit(them) if self._admit is not None else None

    def _mac(self, *, acceptor: bool) -> bytes:
        hellos = (self._their_hello, self._hello) if self._accepts else (self._hello, self._their_hello)
        mac = hmac.new(self._key, digestmod="sha256")
        protocol = f"simcluster {PROTOCOL_VERSION}".encode()
        for part in (protocol, b"acceptor" if acceptor else b"connector", *hellos):
            mac.update(len(part).to_bytes(4, "little") + part)
        return mac.digest()
