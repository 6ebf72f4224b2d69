"""The clients themselves: each visits a port in its own bad manner and says how it was turned away."""

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
"""Who still has a connection after so long is a guest that nobody sends away."""

CROWD = 100
_decoder: msgspec.msgpack.Decoder[HandshakeMessage] = msgspec.msgpack.Decoder(HandshakeMessage)


class GotIn(Exception):
    """What must not happen."""


@dataclass
class Tally:
    """Attempts by (door, kind) and how each ended; *faults* in words."""

    ends: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def note(self, door: str, kind: str, end: str) -> None:
        self.ends.setdefault((door, kind), Counter())[end] += 1

    @property
    def attempts(self) -> int:
        return sum(sum(ends.values()) for ends in self.ends.values())


@dataclass(frozen=True)
class Door:
    """A port: "rendezvous", "data" or "http"; *key* is the run's own, for who replays what somebody said who had it."""

    kind: str
    host: str
    port: int
    key: bytes


class Visit:
    """A connection to *door* and what comes back on it."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self.answer = b""

    async def __aenter__(self) -> Visit:
        self.reader, self.writer = await asyncio.open_connection(self.door.host, self.door.port)
        return self

    async def __aexit__(self, *error: object) -> None:
        self.writer.transport.abort()

    async def say(self, data: bytes) -> None:
        """Whoever is not heard any more has been dropped, as `end` will find."""
        with suppress(OSError):
            self.writer.write(data)
            await asyncio.wait_for(self.writer.drain(), PATIENCE_S)

    async def end(self, *, half_closed: bool = False) -> str:
        """How the other side ended it. Raises GotIn."""
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
    reader, words = Feeding(), ""
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


# manners: each visits once


async def throws(door: Door, chance: random.Random, make: Callable[[random.Random], bytes]) -> str:
    """Says it all at once, and waits or half-closes."""
    async with Visit(door) as visit:
        await visit.say(make(chance))
        return await visit.end(half_closed=chance.random() < 0.5)


async def trickles(door: Door, chance: random.Random) -> str:
    """Slow-loris: a byte now and then, for ever."""
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
    """A whole head, and then a body that never ends."""
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
    """More silent connections at once than are let to wait."""
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
    """The right words with a wrong key, a proof of zeros, or the acceptor's own proof back."""
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
    """Says again what somebody who has the key has said at this very door, and was believed."""

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
        """With the key, but a name that is no node's: its proof is found to be right, or it would not be told so.

        None if the door is too crowded.
        """
        who = PeerIdentity(_lane(door), "recorded", 99)
        async with Visit(door) as visit:  # the acceptor says in clear of which run it is
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
    """The next *count* headers of handshake frames, or fewer if it is dropped before."""
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
    """What is done at *door*: how many do it at once, and what."""
    makers = HTTP if door.kind == "http" else FRAMES
    found: dict[str, tuple[int, Callable[[Door, random.Random], object]]] = {
        name: (1, lambda door, chance, make=make: throws(door, chance, make)) for name, make in makers.items()
    }
    found |= {"slow-loris": (6, trickles), "crowd": (1, crowds)}
    if door.kind == "http":
        return found | {"slow body": (6, trickles_body)}
    return found | {"wrong key": (1, guesses), "replayed live": (1, Replays())}
