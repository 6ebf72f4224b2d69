"""The readers of the bytes that hostile clients send, a corpus of such bytes, and its mutations."""

from __future__ import annotations

import ast
import random
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np
from simcluster_backends.sockets.wire.frame import Bytes, Frame, FrameKind, Preamble, crc32c, header_crc
from simcluster_backends.sockets.wire.handshake import Handshake, PeerIdentity
from simcluster_backends.sockets.wire.messages import read_from_launcher, read_from_node
from simcluster_backends.sockets.wire.protocol import PROTOCOL_VERSION

from simcluster import __version__
from simcluster.errors import HandshakeRefused, ProtocolError
from simcluster.payload import PREAMBLE_BYTES
from tools.hostile.inputs import FRAMES, HTTP, LAYOUT, STRANGE_KEY, Feeding, resealed
from tools.hostile.peers import PEERS

CORPUS = Path(__file__).parent / "corpus"
FAMILIES = {"frames": FRAMES, "peers": PEERS, "http": HTTP}
TYPED = (ProtocolError, HandshakeRefused)
OLD_PACKAGE = msgspec.msgpack.encode("0.1.0")
"""The version of this package in the corpus.

Any other version would make readers refuse a hello.
"""

Line: TypeAlias = tuple[str, int]
"""(file name, line number)."""


class Slot:
    """A stand-in for a peer's shared memory. It returns the same slot for every message."""

    slot_bytes = 16

    def take(self) -> Bytes:
        return np.zeros(self.slot_bytes, np.uint8)

    def give_back(self) -> None:
        pass


def split(data: bytes) -> tuple[list[bytes], bytes]:
    """Return (the complete frames at the beginning of *data*, the remaining bytes)."""
    found = []
    while len(data) >= PREAMBLE_BYTES:
        preamble = Preamble.read(data)
        size = PREAMBLE_BYTES + preamble.header_len + preamble.body_len
        if preamble.magic != b"simc" or size > len(data):
            break
        found.append(data[:size])
        data = data[size:]
    return found, data


def today(data: bytes) -> bytes:
    """Return *data* with the current versions of the protocol and the package.

    Otherwise readers would refuse a frame for its version instead of its content.
    """
    found, rest = split(data)
    found = [_today(frame) for frame in found]
    if len(rest) >= PREAMBLE_BYTES and rest[:4] == b"simc":
        rest = _today(rest)
    elif rest[:4] == b"simc" and len(rest) > 4:
        rest = rest[:4] + bytes([PROTOCOL_VERSION]) + rest[5:]
    return b"".join(found) + rest


def _today(frame: bytes) -> bytes:
    preamble = Preamble.read(frame)
    header, body = _header_and_body(frame)
    # A frame with a wrong checksum must keep a wrong one, since it tests that check.
    fits = preamble.header_crc == header_crc(frame[:PREAMBLE_BYTES], header)
    now = header.replace(OLD_PACKAGE, msgspec.msgpack.encode(__version__), 1)
    preamble = preamble._replace(version=PROTOCOL_VERSION, header_len=preamble.header_len + len(now) - len(header))
    changed = LAYOUT.pack(*preamble) + now + body
    return resealed(changed) if fits else changed


def _header_and_body(frame: bytes) -> tuple[bytes, bytes]:
    end = PREAMBLE_BYTES + Preamble.read(frame).header_len
    return frame[PREAMBLE_BYTES:end], frame[end:]


def readers(data: bytes) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield (name, read) for every reader of *data*, before and after the handshake."""
    frames, _ = split(data)
    header, body = _header_and_body(frames[0]) if frames else (data[PREAMBLE_BYTES:], data[PREAMBLE_BYTES:])
    yield "a stranger's connection", lambda: said_by_a_stranger(data)
    yield "a peer's connection", lambda: Feeding(is_open=True).feed(data)
    yield "a peer's connection with shared memory", lambda: _sharing().feed(data)
    # A frame of an unknown kind is read as a message of the control lane.
    kind = Preamble.read(frames[0]).kind if frames else FrameKind.CONTROL
    control = Frame(FrameKind(kind) if kind in set(FrameKind) else FrameKind.CONTROL, b"", body)
    yield "a node on the control lane", lambda: read_from_launcher(control)
    yield "a launcher on the control lane", lambda: read_from_node(control)
    yield "an acceptor's handshake", lambda: handshake(accepts=True).receive(header)
    yield "a connector's handshake", lambda: handshake(accepts=False).receive(header)


def said_by_a_stranger(data: bytes) -> bool:
    """Return whether *data* alone passes the handshake.

    Raise the reader's error if it is refused.
    """
    reader = Feeding()
    door = handshake(accepts=True)
    return any(door.receive(frame.header) for frame in reader.feed(data))


def handshake(*, accepts: bool) -> Handshake:
    return Handshake(STRANGE_KEY, PeerIdentity("data", "door"), accepts=accepts)


def _sharing() -> Feeding:
    reader = Feeding(is_open=True)
    reader.slots = Slot()
    return reader


def refusal(read: Callable[[], object]) -> Exception | None:
    """Return the typed error that *read* raises, or None if it needs more bytes.

    Other errors propagate. Raise AssertionError if the handshake succeeds.
    """
    try:
        let_in = read()
    except TYPED as error:
        return error
    assert let_in is not True, "let in"
    return None


def untyped(data: bytes) -> list[str]:
    """Return the readers that accept the sender of *data*, or fail with an untyped error."""
    found = []
    for name, read in readers(data):
        try:
            refusal(read)
        except BaseException as error:
            found.append(f"{name}: {type(error).__name__}: {error}")
    return found


def stops(data: bytes) -> Iterator[tuple[str, str, Line]]:
    """Yield (reader, error message, position of the `raise`) for each reader that refuses
    *data*.
    """
    for name, read in readers(data):
        if (error := refusal(read)) is not None:
            last = traceback.extract_tb(error.__traceback__)[-1]
            yield name, str(error), (Path(last.filename).name, last.lineno or 0)


def refusals(path: Path) -> list[tuple[range, str]]:
    """Return (lines, source) of each `raise` in the module at *path* that makes a new error."""
    text = path.read_text()
    return [
        (range(node.lineno, (node.end_lineno or node.lineno) + 1), ast.get_source_segment(text, node) or "")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
    ]


def corpus(family: str) -> list[Path]:
    """Return the files of the corpus of *family*: "frames" of strangers, "peers" or "http"."""
    return sorted(CORPUS.glob(f"{family}-*.bin"))


def mutated(chance: random.Random, data: bytes) -> bytes:
    """Return *data* with one damaged frame. In about half of the results, the checksums match."""
    frames, rest = split(data)
    at = chance.randrange(len(frames)) if frames else 0
    changed = bytearray(frames[at] if frames else rest)
    lengths = Preamble.read(frames[at]) if frames else None
    for _ in range(chance.choice((1, 1, 2, 5))):
        start = chance.randrange(len(changed) + 1)
        end = start + chance.choice((0, 1, 1, 4))
        changed[start:end] = chance.choice((b"", b"\xff", b"\x00", chance.randbytes(1), chance.randbytes(4)))
    found = bytes(changed)
    if chance.random() < 0.5 and len(found) >= PREAMBLE_BYTES:
        found = _fitting(found, lengths.header_len if lengths is not None and lengths.body_len else len(found))
    return b"".join([*frames[:at], found, *frames[at + 1 :], rest]) if frames else found


def _fitting(frame: bytes, header_bytes: int) -> bytes:
    """Return *frame* with matching lengths and checksums, and a header of at most
    *header_bytes*.
    """
    header_bytes = min(header_bytes, len(frame) - PREAMBLE_BYTES)
    body = frame[PREAMBLE_BYTES + header_bytes :]
    return resealed(frame, header_len=header_bytes, body_len=len(body), body_crc=crc32c(body))


def fuzz(count: int, seed: int) -> list[Path]:
    """Read *count* mutations of the corpus.

    Add each mutation that exposes a defect to the corpus, and return the paths of these files.
    """
    chance = random.Random(seed)
    found = []
    seeds = [today(path.read_bytes()) for family in ("frames", "peers") for path in corpus(family)]
    for _ in range(count):
        data = mutated(chance, chance.choice(seeds))
        if untyped(data):
            path = CORPUS / f"frames-found-{len(corpus('frames'))}.bin"
            path.write_bytes(data)
            found.append(path)
    return found


def write_seeds(seed: int = 0, each: int = 4, tried: int = 300) -> None:
    """Write the seeds of the corpus.

    Make *tried* inputs of each kind. Keep the first *each*, and those that a reader refuses at a
    line that no earlier input reached.
    """
    for family, kinds in FAMILIES.items():
        reached: set[tuple[str, Line]] = set()
        for kind, make in kinds.items():
            chance = random.Random(f"{seed}/{family}/{kind}")
            kept = 0
            for number in range(tried):
                data = make(chance)
                new = {(name, line) for name, _, line in stops(data)} if family != "http" else set()
                if number < each or not new <= reached:
                    (CORPUS / f"{family}-{kind}-{kept}.bin").write_bytes(data)
                    kept += 1
                reached |= new


def show_stops() -> None:
    """Print how many inputs of the corpus each reader refuses, by line."""
    found: Counter[tuple[str, str]] = Counter()
    for family in ("frames", "peers"):
        for path in corpus(family):
            found.update((name, f"{file}:{line}") for name, _, (file, line) in stops(today(path.read_bytes())))
    for (name, where), count in sorted(found.items()):
        print(f"{count:4} {name:40} {where}")


if __name__ == "__main__":
    show_stops()
