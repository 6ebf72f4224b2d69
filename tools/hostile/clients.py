"""The attacks of hostile clients. Each attack returns how the port ended the connection."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec
from simcluster_backends.sockets.net.connection import HANDSHAKE_TIMEOUT_S
from simcluster_backends.sockets.wire.frame import FrameKind
from simcluster_backends.sockets.wire.handshake import (
    Handshake,
    HandshakeMessage,
    HandshakeRefusal,
    Hello,
    PeerIdentity,
    Proof,
    Welcome,
)

from simcluster.errors import ProtocolError
from tools.hostile.inputs import FRAMES, HTTP, STRANGE_KEY, Feeding, a_hello, http_tokens, wire

PATIENCE_S = HANDSHAKE_TIMEOUT_S + 10.0
"""The limit on the time of a visit: a connection that stays open for longer counts as held open."""

CROWD = 100
_decoder: msgspec.msgpack.Decoder[HandshakeMessage] = msgspec.msgpack.Decoder(HandshakeMessage)


class GotIn(Exception):
    """Raised if a client without the key or the token gets in, or gets an answer."""


@dataclass
class Tally:
    """The number of attempts by (door, kind) and by ending, and the list of *faults*."""

    ends: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def note(self, door: str, kind: str, end: str) -> None:
        self.ends.setdefault((door, kind), Counter())[end] += 1

    @property
    def attempts(self) -> int:
        return sum(sum(ends.values()) for ends in self.ends.values())


@dataclass(frozen=True)
class Door:
    """A port of *kind* "rendezvous", "data" or "http".

    *key* is the key of the run. Only the client that replays an accepted handshake uses it.
    """

    kind: str
    host: str
    port: int
    key: bytes


class Visit:
    """A connection to *door*. *answer* is what the door has sent so far."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self.answer = b""

    async def __aenter__(self) -> Visit:
        self.reader, self.writer = await asyncio.open_connection(self.door.host, self.door.port)
        return self

    async def __aexit__(self, *error: object) -> None:
        self.writer.transport.abort()

    async def say(self, data: bytes) -> None:
        """Send *data*. Ignore a closed connection: `end` reports how it was closed."""
        with suppress(OSError):
            self.writer.write(data)
            await asyncio.wait_for(self.writer.drain(), PATIENCE_S)

    async def end(self, *, half_closed: bool = False) -> str:
        """Return how the other side ended the connection. Raise GotIn for a forbidden answer."""
        if half_closed and self.writer.can_write_eof():
            with suppress(OSError):
                self.writer.write_eof()
        how = "closed"
        try:
            async with asyncio.timeout(PATIENCE_S):
                while more := await self.reader.read(65536):
                    self.answer = (self.answer + more)[:65536]
        except TimeoutError:
            return "HELD OPEN"
        except OSError:
            how = "reset"
        said = in_words_of_http(self.answer) if self.door.kind == "http" else in_words_of_frames(self.answer)
        return f"{said}, {how}" if said else how


def in_words_of_frames(answer: bytes) -> str:
    reader = Feeding()
    words = ""
    try:
        messages = [_decoder.decode(frame.header) for frame in reader.feed(answer)]
    except ProtocolError as error:
        raise GotIn(f"something else than a handshake was answered: {error}: {answer[:80]!r}") from None
    for message in messages:
        if isinstance(message, Welcome):
            raise GotIn("welcome")
        if isinstance(message, HandshakeRefusal):
            words = "refused: " + re.sub(r"'.*?'|\d[\d.]*", "_", message.reason)
        elif isinstance(message, Proof):
            words = words or "its proof"
    return words


def in_words_of_http(answer: bytes) -> str:
    codes = re.findall(rb"HTTP/1\.1 (\d\d\d)", answer)
    if b"200" in codes and b"<!doctype html>" not in answer.lower():
        raise GotIn(f"answered: {answer[:200]!r}")
    return "/".join(code.decode() for code in codes[:3])


# Attacks: each function makes one visit and returns how it ended.


async def throws(door: Door, chance: random.Random, make: Callable[[random.Random], bytes]) -> str:
    """Send the bytes of *make* at once, then either wait or close the sending half."""
    async with Visit(door) as visit:
        await visit.say(make(chance))
        return await visit.end(half_closed=chance.random() < 0.5)


async def trickles(door: Door, chance: random.Random) -> str:
    """Send a byte every 0.3 s until the door closes the connection (slow loris)."""
    data = http_tokens(chance)[:-4] if door.kind == "http" else a_hello(chance)
    async with Visit(door) as visit:
        ending = asyncio.ensure_future(visit.end())
        try:
            for byte in data + bytes(1000):
                await visit.say(bytes([byte]))
                done, _ = await asyncio.wait([ending], timeout=0.3)
                if done:
                    break
            return await ending
        finally:
            ending.cancel()


async def trickles_body(door: Door, chance: random.Random) -> str:
    """Send a complete HTTP head, then the body byte by byte until the door closes the
    connection.
    """
    async with Visit(door) as visit:
        ending = asyncio.ensure_future(visit.end())
        path = chance.choice((b"/", b"/telemetry"))
        await visit.say(b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000\r\n\r\n")
        try:
            while not (await asyncio.wait([ending], timeout=0.3))[0]:
                await visit.say(b"x")
            return await ending
        finally:
            ending.cancel()


async def crowds(door: Door, chance: random.Random) -> str:
    """Open more silent connections at once than the port accepts."""
    visits = [Visit(door) for _ in range(CROWD)]
    await asyncio.gather(*(visit.__aenter__() for visit in visits), return_exceptions=True)
    try:
        ends = await asyncio.gather(*(visit.end() for visit in visits if hasattr(visit, "writer")))
    finally:
        for visit in visits:
            if hasattr(visit, "writer"):
                await visit.__aexit__()
    counted = Counter(ends)
    return "HELD OPEN" if counted["HELD OPEN"] else "all " + "/".join(sorted(counted))


async def guesses(door: Door, chance: random.Random) -> str:
    """Shake hands without the run's key.

    The proof consists of zeros or random bytes, is empty, or echoes the acceptor's own proof.
    """
    node = Handshake(STRANGE_KEY, PeerIdentity(_lane(door), f"n{chance.randrange(4)}", 1), accepts=False)
    async with Visit(door) as visit:
        await visit.say(wire(FrameKind.HANDSHAKE, node.to_send()[0]))
        answer = await _frames(visit, 2)
        proof = msgspec.msgpack.encode([2, chance.choice((bytes(32), chance.randbytes(32), b""))])
        if len(answer) == 2 and chance.random() < 0.5:
            proof = answer[1]
        await visit.say(wire(FrameKind.HANDSHAKE, proof, seq=1))
        return await visit.end()


class Replays:
    """A client that records an accepted handshake at a door, and repeats its bytes there."""

    def __init__(self) -> None:
        self._said: dict[Door, bytes] = {}

    async def __call__(self, door: Door, chance: random.Random) -> str:
        if door not in self._said:
            said = await self._record(door)
            if said is None:
                return "not heard, for now"
            self._said[door] = said
        async with Visit(door) as visit:
            await visit.say(self._said[door] + wire(FrameKind.CONTROL, body=b"\x91\xa9connected", seq=2))
            return await visit.end()

    async def _record(self, door: Door) -> bytes | None:
        """Return the bytes of a handshake with the right key, under a name that no node has.

        The door checks the proof first and the name second. Return None if the door is too crowded
        to answer.
        """
        who = PeerIdentity(_lane(door), "recorded", 99)
        async with Visit(door) as visit:  # to read the run's id, which is sent unencrypted
            await visit.say(wire(FrameKind.HANDSHAKE, Handshake(door.key, who, accepts=False).to_send()[0]))
            answer = await _frames(visit, 1)
        if not answer:
            return None
        theirs = msgspec.msgpack.decode(answer[0], type=Hello)
        who = PeerIdentity(who.lane, who.name, who.rank, theirs.run, theirs.config)
        node = Handshake(door.key, who, accepts=False)
        async with Visit(door) as visit:
            hello = wire(FrameKind.HANDSHAKE, node.to_send()[0])
            await visit.say(hello)
            answer = await _frames(visit, 2)
            if len(answer) < 2:
                return None
            for header in answer:
                node.receive(header)
            proof = wire(FrameKind.HANDSHAKE, node.to_send()[0], seq=1)
            visit.answer = b""
            await visit.say(proof)
            said = await visit.reader.read(4096)
        if b"no peer" not in said and b"no node" not in said:
            raise GotIn(f"a stranger with the key is told {said!r}")
        return hello + proof


async def _frames(visit: Visit, count: int) -> list[bytes]:
    """Return the next *count* headers of handshake frames, or fewer if the connection
    ends first.
    """
    reader = Feeding()
    found: list[bytes] = []
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(PATIENCE_S):
            while len(found) < count and (more := await visit.reader.read(4096)):
                visit.answer += more
                found += [frame.header for frame in reader.feed(more)]
    return found


def _lane(door: Door) -> str:
    return "control" if door.kind == "rendezvous" else "data"


def manners(door: Door) -> dict[str, tuple[int, Callable[[Door, random.Random], object]]]:
    """Return name of an attack on *door* -> (number of concurrent clients, function for
    one visit).
    """
    makers = HTTP if door.kind == "http" else FRAMES
    found: dict[str, tuple[int, Callable[[Door, random.Random], object]]] = {
        name: (1, lambda door, chance, make=make: throws(door, chance, make)) for name, make in makers.items()
    }
    found |= {"slow-loris": (6, trickles), "crowd": (1, crowds)}
    if door.kind == "http":
        return found | {"slow body": (6, trickles_body)}
    return found | {"wrong key": (1, guesses), "replayed live": (1, Replays())}
