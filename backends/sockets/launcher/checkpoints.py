"""Checkpoints over the control lane: every node hands its part to the launcher, which alone writes; and the way back.

So a node on another machine needs no folder in common, and one process puts files in order. A node waits until its part
before is on the launcher's disk, and holds nobody up meanwhile; the launcher writes in a thread. This file knows bytes
and who sends them. It must not know folders, or what is in a checkpoint.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import msgspec

from backends.sockets.wire.messages import PIECE_BYTES, BeginWith, ShardPiece, Stored
from simcluster.checkpoints.shard import Shard

if TYPE_CHECKING:
    from backends.sockets.launcher.member import Member
    from backends.sockets.node.control_lane import ControlLane
    from backends.sockets.node.transport import SocketTransport
    from simcluster.checkpoints.keeping import Keeping

T = TypeVar("T")

log = logging.getLogger("simcluster.sockets")


class ToLauncher:
    """A node's end: a simcluster.checkpoints.keeper.Channel, and what it begins with."""

    def __init__(self, lane: ControlLane, transport: SocketTransport) -> None:
        self._lane, self._transport = lane, transport
        self._on_its_way = asyncio.Lock()
        self._pieces: list[bytes] = []
        self._begins_with: asyncio.Future[Shard] = asyncio.get_running_loop().create_future()

    async def hand_in(self, make: Callable[[], Shard]) -> None:
        await self._on_its_way.acquire()  # until `stored`
        content = await asyncio.to_thread(lambda: msgspec.msgpack.encode(make()))
        await asyncio.wrap_future(self._lane.send_all(ShardPiece(piece, last) for piece, last in _pieces(content)))

    async def aside(self, work: Callable[[], T]) -> T:
        return await self._transport.aside(work)

    def stored(self) -> None:
        """The launcher has dealt with what was handed in."""
        if self._on_its_way.locked():
            self._on_its_way.release()

    def hear(self, message: BeginWith) -> None:
        """The next piece of what this node begins with."""
        self._pieces.append(message.content)
        if message.last and not self._begins_with.done():
            self._begins_with.set_result(_decode(self._pieces))
            self._pieces = []

    async def begins_with(self) -> Shard:
        """All of it, once it is here."""
        return await self._begins_with


class FromNodes:
    """The launcher's end."""

    def __init__(self, keeping: Keeping | None, members: Sequence[Member]) -> None:
        self._keeping, self._members = keeping, members
        self._pieces: dict[int, list[bytes]] = {}
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoints")
        self._loop = asyncio.get_running_loop()

    def welcome(self, member: Member) -> None:
        """Tells *member*, which has just joined, what it begins with."""
        self._pieces.pop(member.rank, None)  # of a life that is over
        shard = self._keeping.begins_with(member.rank) if self._keeping is not None else None
        if shard is not None:
            for piece, last in _pieces(msgspec.msgpack.encode(shard)):
                member.tell(BeginWith(piece, last))

    def hear(self, member: Member, message: ShardPiece) -> None:
        """The next piece of what *member* hands in."""
        pieces = self._pieces.setdefault(member.rank, [])
        pieces.append(message.content)
        if message.last:
            lost = {other.rank for other in self._members if other.gone is not None}
            self._writer.submit(self._write, self._pieces.pop(member.rank), member, lost)

    async def close(self) -> None:
        """Returns when all that was handed in is dealt with."""
        await asyncio.to_thread(self._writer.shutdown)

    def _write(self, pieces: list[bytes], member: Member, lost: set[int]) -> None:
        try:
            if self._keeping is not None:
                self._keeping.add(_decode(pieces), lost)
        except Exception:
            log.exception("%s handed in something that could not be kept; the run goes on", member.label)
        with suppress(RuntimeError):  # the run is over
            self._loop.call_soon_threadsafe(member.tell, Stored())


def _pieces(content: bytes) -> Iterator[tuple[bytes, bool]]:
    """(piece, whether it is the last), each small enough for what is urgent to come in between."""
    for start in range(0, len(content), PIECE_BYTES):
        yield content[start : start + PIECE_BYTES], start + PIECE_BYTES >= len(content)


def _decode(pieces: Sequence[bytes]) -> Shard:
    shard: Shard = msgspec.msgpack.decode(b"".join(pieces), type=Shard)
    return shard
