"""Bytes that clients without the key may send, by kind of attack and seed.

This module opens no socket.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import msgspec
from simcluster_backends.sockets.wire.frame import (
    HANDSHAKE_LIMIT_BYTES,
    Frame,
    FrameKind,
    Preamble,
    as_octets,
    header_crc,
)
from simcluster_backends.sockets.wire.handshake import Handshake, PeerIdentity
from simcluster_backends.sockets.wire.outgoing import OutgoingFrame
from simcluster_backends.sockets.wire.protocol import PROTOCOL_VERSION
from simcluster_backends.sockets.wire.reader import FrameReader

from simcluster import __version__
from simcluster.payload import PREAMBLE_BYTES

KEY, STRANGE_KEY = b"k" * 32, b"s" * 32
LAYOUT = struct.Struct("<4sBBHIQQIII")  # the layout of a frame's preamble


class Feeding(FrameReader):
    """A frame reader that accepts bytes in pieces of any size."""

    def feed(self, data: bytes) -> list[Frame]:
        """Process *data*. Return the frames that it completes."""
        frames = []
        view = memoryview(data)
        while view:
            buffer = self.buffer()
            count = min(len(buffer), len(view))
            buffer[:count] = view[:count]
            self.received(count)
            view = view[count:]
            while (frame := self.next_frame()) is not None:
                frames.append(frame)
        return frames


def wire(kind: FrameKind, header: bytes = b"", body: bytes = b"", seq: int = 0) -> bytes:
    """Return the bytes of one frame."""
    return b"".join(map(bytes, OutgoingFrame(kind, header, [as_octets(body)]).chunks(seq)))


def resealed(data: bytes, **fields: int) -> bytes:
    """Return the frame *data* with changed *fields* in its preamble, and with a matching
    checksum.
    """
    preamble = Preamble.read(data[:PREAMBLE_BYTES])._replace(**fields)
    header = data[PREAMBLE_BYTES:]
    crc = header_crc(LAYOUT.pack(*preamble), header[: preamble.header_len])
    return LAYOUT.pack(*preamble._replace(header_crc=crc)) + header


def conversation(lane: str, name: str) -> tuple[bytes, bytes]:
    """Return the hello and the proof of a node with the right key, which an acceptor accepts."""
    node = Handshake(KEY, PeerIdentity(lane, name, 1), accepts=False)
    door = Handshake(KEY, PeerIdentity(lane, "door"), accepts=True)
    (hello,) = node.to_send()
    door.receive(hello)
    for header in door.to_send():
        node.receive(header)
    (proof,) = node.to_send()
    assert door.receive(proof)
    return wire(FrameKind.HANDSHAKE, hello), wire(FrameKind.HANDSHAKE, proof, seq=1)


def a_hello(chance: random.Random) -> bytes:
    return conversation(chance.choice(("control", "data")), f"n{chance.randrange(4)}")[0]


def random_bytes(chance: random.Random) -> bytes:
    ours = b"simc" + bytes([PROTOCOL_VERSION])
    # The first bytes of our own protocol, of HTTP and of TLS.
    start = chance.choice((b"", b"s", b"simc", ours, ours + b"\x01", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02"))
    return start + chance.randbytes(chance.choice((1, 39, 40, 41, 256, 4096, 70_000)))


def huge_lengths(chance: random.Random) -> bytes:
    """Return a preamble that announces too many bytes, with a checksum that matches."""
    fields = {"kind": chance.choice((1, 1, 2, 3, 4, 0, 255))}
    most = chance.choice((217, 2**16, 2**16 + 1, 2**31, 2**32 - 1))
    fields[chance.choice(("header_len", "body_len"))] = most
    if chance.random() < 0.3:
        fields["body_len"] = chance.choice((2**30, 2**40, 2**63, 2**64 - 1))
    return resealed(a_hello(chance), **fields) + chance.randbytes(chance.choice((0, 300)))


def half_frames(chance: random.Random) -> bytes:
    data = a_hello(chance)
    return data[: chance.randrange(1, len(data))]


def changed_frames(chance: random.Random) -> bytes:
    """Return a hello with changed bytes.

    Its checksum matches, so that the reader decodes the bytes.
    """
    data = bytearray(a_hello(chance))
    for _ in range(chance.choice((1, 1, 2, 8))):
        data[chance.randrange(PREAMBLE_BYTES, len(data))] = chance.choice((0, 0x7F, 0xC1, 0xFF, chance.randrange(256)))
    cut = chance.randrange(PREAMBLE_BYTES, len(data) + 1) if chance.random() < 0.3 else len(data)
    return resealed(bytes(data[:cut]), header_len=cut - PREAMBLE_BYTES)


def words(chance: random.Random) -> bytes:
    """Return a well-formed handshake message without a valid meaning."""
    whole = an_integer(chance)
    # Texts: empty, long, with control characters, with multi-byte characters, and right to left.
    texts = ("", "x" * 60, "\x1b[2J\n\r", "ü" * 30, "\u202e\x00")
    nonce = chance.randbytes(chance.choice((0, 31, 32, 33)))
    text = chance.choice(texts)
    message = chance.choice(
        (
            [1, nonce, __version__, "data", text, whole, b"", b""],
            [1, nonce, __version__, "data", "n0", 1, b"", b"", 0, whole],
            [1, nonce, text, text, text, whole, b"r" * 16, b"c" * 32],
            [2, chance.randbytes(chance.choice((0, 32, 200)))],
            [3],
            [4, text],
            [chance.randrange(-1, 300), text],
            {"type": 1, text: whole},
            whole,
        )
    )
    return wire(FrameKind.HANDSHAKE, msgspec.msgpack.encode(message))


def an_integer(chance: random.Random) -> int:
    # The limits of msgpack's integer types.
    return chance.choice((-(2**63), -1, 0, 1, 2**31, 2**63, 2**64 - 1))


def nested(chance: random.Random) -> bytes:
    """Return a frame of nested lists or maps, or of values that claim to be longer than
    the frame.
    """
    room = HANDSHAKE_LIMIT_BYTES - PREAMBLE_BYTES
    # A list, a map, and the heads of an array, of bytes and of a text that claim gigabytes.
    head = chance.choice(
        (b"\x91", b"\x81\xa1a", b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\x7f\xff\xff\xff")
    )
    return wire(FrameKind.HANDSHAKE, (head * room)[: chance.randrange(len(head), room + 1)])


def replayed(chance: random.Random) -> bytes:
    """Return all bytes that a node sent in an earlier handshake, which was accepted."""
    return b"".join(conversation(chance.choice(("control", "data")), f"n{chance.randrange(4)}"))


FRAMES: dict[str, Callable[[random.Random], bytes]] = {
    "random": random_bytes,
    "lengths": huge_lengths,
    "half": half_frames,
    "changed": changed_frames,
    "words": words,
    "nested": nested,
    "replayed": replayed,
}


def http_random(chance: random.Random) -> bytes:
    start = chance.choice(
        (b"", b"GET ", b"POST / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\nA", b"PRI * HTTP/2.0")
    )
    return start + chance.randbytes(chance.choice((1, 100, 5000))) + b"\r\n\r\n"


def http_lengths(chance: random.Random) -> bytes:
    """Return a request with an invalid length, or with a body or head that is too long."""
    extra = chance.choice(
        (
            b"Content-Length: 99999999999999999999\r\n",
            b"Content-Length: 4194305\r\n",
            b"Content-Length: -1\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"X: " + b"y" * 20_000 + b"\r\n",
            b"X: y\r\n" * 4_000,
        )
    )
    path = chance.choice((b"/", b"/status", b"/telemetry", b"/runs", b"/" + b"a" * 20_000))
    request = chance.choice((b"GET ", b"POST ")) + path + b" HTTP/1.1\r\nHost: localhost\r\n" + extra + b"\r\n"
    return request + chance.choice((b"", b"x" * 5000, b"FFFFFFFFFFFF\r\n" + b"z" * 1000))


def http_half(chance: random.Random) -> bytes:
    data = http_tokens(chance)
    return data[: chance.randrange(1, len(data) - 3)]


def http_tokens(chance: random.Random) -> bytes:
    """Return a complete request without the token."""
    paths = (
        "/status",
        "/history",
        "/metrics",
        "/workers",
        "/runs",
        "/runs/end",
        "/telemetry",
        "/openapi.json",
        "//",
        "/%2e",
    )
    token = chance.choice(
        ("", "Bearer", "Bearer x", "Basic eDp5", f"Bearer {chance.randbytes(32).hex()}", "Bearer \xff")
    )
    host = chance.choice(("localhost", "127.0.0.1", "evil.example", "", "localhost\r\nHost: localhost"))
    more = chance.choice(
        ("", "Connection: Upgrade\r\nUpgrade: websocket\r\n", "Expect: 100-continue\r\n", "Origin: null\r\n")
    )
    method = chance.choice(("GET", "POST", "HEAD", "OPTIONS", "DELETE", "TRACE"))
    text = f"{method} {chance.choice(paths)} HTTP/1.1\r\nHost: {host}\r\nAuthorization: {token}\r\n{more}"
    return (text + "Content-Length: 2\r\n\r\n{}").encode("latin-1")


HTTP: dict[str, Callable[[random.Random], bytes]] = {
    "random": http_random,
    "lengths": http_lengths,
    "half": http_half,
    "tokens": http_tokens,
}
