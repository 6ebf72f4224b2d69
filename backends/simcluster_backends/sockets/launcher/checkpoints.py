"""The launcher's end of checkpoints: nodes send their shards, and only the launcher writes them.

So machines need no shared directory, and a single process keeps the files consistent. The launcher
writes in a thread. Before a node sends a shard, it waits only until the launcher has written the
node's previous shard.
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
from simcluster_backends.sockets.wire.messages import CheckpointPiece, ShardPiece, ShardReply, in_pieces

if TYPE_CHECKING:
    from simcluster.checkpoints.gather import CheckpointKeeping
    from simcluster_backends.sockets.launcher.node_handle import NodeHandle

log = logging.getLogger("simcluster.sockets")


class NodeShards:
    """The shards that nodes send for checkpoints, and the shards from which nodes resume."""

    def __init__(self, keeping: CheckpointKeeping | None, members: Sequence[NodeHandle]) -> None:
        self._keeping = keeping
        self._members = members
        self._pieces: dict[int, list[bytes]] = {}
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoints")
        self._loop = asyncio.get_running_loop()

    def welcome(self, member: NodeHandle) -> None:
        """Send *member*, which has just connected, the shard from which it resumes, if any."""
        self._pieces.pop(member.rank, None)  # from an earlier incarnation
        shard = self._keeping.begins_with(member.rank) if self._keeping is not None else None
        if shard is not None:
            for piece, last in in_pieces(msgspec.msgpack.encode(shard)):
                member.tell(CheckpointPiece(piece, last))

    def hear(self, member: NodeHandle, message: ShardPiece) -> None:
        """Store the next piece of *member*'s shard. After the last one, write the shard."""
        pieces = self._pieces.setdefault(member.rank, [])
        pieces.append(message.content)
        if message.last:
            lost = {other.rank for other in self._members if other.gone is not None}
            self._writer.submit(self._write, self._pieces.pop(member.rank), member, lost)

    async def close(self) -> None:
        """Return when all complete shards have been written."""
        await asyncio.to_thread(self._writer.shutdown)

    def _write(self, pieces: list[bytes], member: NodeHandle, lost: set[int]) -> None:
        try:
            if self._keeping is not None:
                self._keeping.add(msgspec.msgpack.decode(b"".join(pieces), type=Shard), lost)
        except Exception:
            log.exception("cannot keep the checkpoint shard of %s; the run continues", member.label)
        with suppress(RuntimeError):  # the run has ended
            self._loop.call_soon_threadsafe(member.tell, ShardReply())
