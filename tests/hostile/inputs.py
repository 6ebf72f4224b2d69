"""What hostile clients say, by kind and seed, and the corpus of it that is kept; no socket anywhere."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from simcluster.errors import HandshakeRefused, ProtocolError
from simcluster.payload import PREAMBLE_BYTES
from simcluster_backends.sockets.wire.frame import HANDSHAKE_LIMIT_BYTES, Frame, Kind, Preamble, as_octets, header_crc
from simcluster_backends.sockets.wire.handshake import Handshake, Identity
from simcluster_backends.sockets.wire.messages import read_from_launcher, read_from_node
from simcluster_backends.sockets.wire.outgoing import Outgoing
from simcluster_backends.sockets.wire.reader import FrameReader

CORPUS = Path(__file__).parent / "corpus"
KEY, STRANGE_KEY = b"k" * 32, b"s" * 32
TYPED = (ProtocolError, HandshakeRefused)
_layout = struct.Struct("<4sBBHIQQIII")


class Feeding(FrameReader):
    """A reader that takes bytes as they come."""

    def feed(self, data: bytes) -> list[Frame]:
        """Process *data*; return the frames that it completes."""
        frames, view = [], memoryview(data)
        while view:
            buffer = self.buffer()
            count = min(len(buffer), len(view))
            buffer[:count] = view[:count]
            self.received(count)
            view = view[count:]
            while (frame := self.next_frame()) is not None:
                frames.append(frame)
        return frames


def wire(kind: Kind, header: bytes = b"", body: bytes = b"", seq: int = 0) -> bytes:
    """One frame."""
    return b"".join(map(bytes, Outgoing(kind, header, [as_octets(body)]).chunks(seq)))


def resealed(data: bytes, **fields: int) -> bytes:
    """*data*, a frame, with other *fields* in its preamble and a checksum that fits them."""
    preamble = Preamble.read(data[:PREAMBLE_BYTES])._replace(**fields)
    header = data[PREAMBLE_BYTES:]
    crc = header_crc(_layout.pack(*preamble), header[: preamble.header_len])
    return _layout.pack(*preamble._replace(header_crc=crc)) + header


def conversation(lane: str, name: str) -> tuple[bytes, bytes]:
    """What a node that has the key says to an acceptor that lets it in: its hello and its proof."""
    node = Handshake(KEY, Identity(lane, name, 1), accepts=False)
    door = Handshake(KEY, Identity(lane, "door"), accepts=True)
    (hello,) = node.to_send()
    door.receive(hello)
    for header in door.to_send():
        node.receive(header)
    (proof,) = node.to_send()
    assert door.receive(proof)
    return wire(Kind.HANDSHAKE, hello), wire(Kind.HANDSHAKE, proof, seq=1)


def a_hello(chance: random.Random) -> bytes:
    return conversation(chance.choice(("control", "data")), f"n{chance.randrange(4)}")[0]


def random_bytes(chance: random.Random) -> bytes:
    start = chance.choice(
        (b"", b"s", b"simc", b"simc\x01", b"simc\x01\x01", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02")
    )
    return start + chance.randbytes(chance.choice((1, 39, 40, 41, 256, 4096, 70_000)))


def huge_lengths(chance: random.Random) -> bytes:
    """Preambles that announce more than anybody has, under checksums that fit."""
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
    """A hello in which bytes were changed, under a checksum that fits: what the decoder gets to see."""
    data = bytearray(a_hello(chance))
    for _ in range(chance.choice((1, 1, 2, 8))):
        data[chance.randrange(PREAMBLE_BYTES, len(data))] = chance.choice((0, 0x7F, 0xC1, 0xFF, chance.randrange(256)))
    cut = chance.randrange(PREAMBLE_BYTES, len(data) + 1) if chance.random() < 0.3 else len(data)
    return resealed(bytes(data[:cut]), header_len=cut - PREAMBLE_BYTES)


def words(chance: random.Random) -> bytes:
    """Handshake messages that are well formed and mean nonsense."""
    whole = an_integer(chance)
    texts = ("", "x" * 60, "\x1b[2J\n\r", "ü" * 30, "\u202e\x00")
    nonce, text = chance.randbytes(chance.choice((0, 31, 32, 33))), chance.choice(texts)
    message = chance.choice(
        (
            [1, nonce, "0.1.0", "data", text, whole, b"", b""],
            [1, nonce, text, text, text, whole, b"r" * 16, b"c" * 32],
            [2, chance.randbytes(chance.choice((0, 32, 200)))],
            [3],
            [4, text],
            [chance.randrange(-1, 300), text],
            {"type": 1, text: whole},
            whole,
        )
    )
    return wire(Kind.HANDSHAKE, msgspec.msgpack.encode(message))


def an_integer(chance: random.Random) -> int:
    return chance.choice((-(2**63), -1, 0, 1, 2**31, 2**63, 2**64 - 1))


def nested(chance: random.Random) -> bytes:
    """Lists in lists, and strings that are longer than their frame."""
    room = HANDSHAKE_LIMIT_BYTES - PREAMBLE_BYTES
    head = chance.choice(
        (b"\x91", b"\x81\xa1a", b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\x7f\xff\xff\xff")
    )
    return wire(Kind.HANDSHAKE, (head * room)[: chance.randrange(len(head), room + 1)])


def replayed(chance: random.Random) -> bytes:
    """All that a node once said to get in, again."""
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
    """Requests that announce, or have, more than is taken."""
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
    """Whole requests of somebody without the token."""
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


def readers(data: bytes) -> Iterator[tuple[str, Callable[[], object]]]:
    """All that *data* may be read by, before a peer has proven anything and after."""
    header = data[PREAMBLE_BYTES:]
    yield "a stranger's connection", lambda: said_by_a_stranger(data)
    yield "a peer's connection", lambda: Feeding(is_open=True).feed(data)
    control = Frame(Kind.CONTROL, b"", header)
    yield "a node on the control lane", lambda: read_from_launcher(control)
    yield "a launcher on the control lane", lambda: read_from_node(control)
    for accepts in (True, False):
        yield f"a handshake, accepts={accepts}", lambda accepts=accepts: _handshake(accepts).receive(header)  # type: ignore[misc]


def said_by_a_stranger(data: bytes) -> bool:
    """Whether *data* alone gets somebody in; raises what the door answers it with."""
    reader, door = Feeding(), _handshake(True)
    return any(door.receive(frame.header) for frame in reader.feed(data))


def refusal(read: Callable[[], object]) -> str:
    """The typed error that *read* raises, or "awaited" if it wants more; anything untyped comes through."""
    try:
        let_in = read()
    except TYPED as error:
        return type(error).__name__
    assert let_in is not True, "let in"
    return "awaited"


def untyped(data: bytes) -> list[str]:
    """Where *data* raises what is no typed error, or gets somebody in."""
    found = []
    for name, read in readers(data):
        try:
            refusal(read)
        except BaseException as error:
            found.append(f"{name}: {type(error).__name__}: {error}")
    return found


def corpus(kind: str) -> list[Path]:
    """The inputs that are kept: "frames" or "http"."""
    return sorted(CORPUS.glob(f"{kind}-*.bin"))


def mutated(chance: random.Random, data: bytes) -> bytes:
    """*data* after some accidents; half of the time under a checksum that fits again."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.randrange(len(changed) + 1)
        end = at + chance.choice((0, 1, 1, 4))
        changed[at:end] = chance.choice((b"", b"\xff", b"\x00", chance.randbytes(1), chance.randbytes(4)))
    if chance.random() < 0.5 and len(changed) >= PREAMBLE_BYTES:
        return resealed(bytes(changed), header_len=len(changed) - PREAMBLE_BYTES)
    return bytes(changed)


def fuzz(count: int, seed: int) -> list[Path]:
    """Reads *count* mutations of the corpus; what raises anything untyped is kept in it, and returned."""
    chance, found = random.Random(seed), []
    seeds = [path.read_bytes() for path in corpus("frames")]
    for _ in range(count):
        data = mutated(chance, chance.choice(seeds))
        if untyped(data):
            path = CORPUS / f"frames-found-{len(corpus('frames'))}.bin"
            path.write_bytes(data)
            found.append(path)
    return found


def _handshake(accepts: bool) -> Handshake:
    return Handshake(STRANGE_KEY, Identity("data", "door"), accepts=accepts)


def write_seeds(seed: int = 0, each: int = 4) -> None:
    """The seeds of the corpus, by kind."""
    for family, kinds in (("frames", FRAMES), ("http", HTTP)):
        for kind, make in kinds.items():
            chance = random.Random(f"{seed}/{family}/{kind}")
            for number in range(each):
                (CORPUS / f"{family}-{kind}-{number}.bin").write_bytes(make(chance))
