"""Checkpoints over the control lane, the launcher's end: every node hands in its part, and the launcher alone writes.

So a node on another machine needs no directory in common, and one process puts files in order. A node waits until its
part before is on the launcher's disk, and holds up no other node meanwhile; the launcher writes in a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from simcluster.checkpoints.shard import Shard
from simcluster_backends.sockets.wire.messages import BeginWith, ShardPiece, Stored, in_pieces

if TYPE_CHECKING:
    from simcluster.checkpoints.keeping import Keeping
    from simcluster_backends.sockets.launcher.member import Member

log = logging.getLogger("simcluster.sockets")


class FromNodes:
    """The parts that nodes hand in, and those that they begin with."""

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
            for piece, last in in_pieces(msgspec.msgpack.encode(shard)):
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
                self._keeping.add(msgspec.msgpack.decode(b"".join(pieces), type=Shard), lost)
        except Exception:
            log.exception("%s handed in something that could not be kept; the run goes on", member.label)
        with suppress(RuntimeError):  # the run is over
            self._loop.call_soon_threadsafe(member.tell, Stored())
