"""Checkpoints over the control lane, a node's end: it hands its shard to the launcher and receives the initial one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import msgspec

from simcluster.checkpoints.shard import Shard
from simcluster_backends.common.device import Device
from simcluster_backends.sockets.node.control_lane import ControlLane
from simcluster_backends.sockets.wire.messages import BeginWith, ShardPiece, in_pieces

T = TypeVar("T")


class ToLauncher:
    """A simcluster.checkpoints.keeper.Channel to the launcher; also receives this node's initial shard."""

    def __init__(self, lane: ControlLane, device: Device) -> None:
        self._lane, self._device = lane, device
        self._on_its_way = asyncio.Lock()
        self._pieces: list[bytes] = []
        self._begins_with: asyncio.Future[Shard] = asyncio.get_running_loop().create_future()

    async def hand_in(self, make: Callable[[], Shard]) -> None:
        await self._on_its_way.acquire()  # until `stored`
        content = await asyncio.to_thread(lambda: msgspec.msgpack.encode(make()))
        await asyncio.wrap_future(self._lane.send_all(ShardPiece(piece, last) for piece, last in in_pieces(content)))

    async def aside(self, work: Callable[[], T]) -> T:
        return await self._device.aside(work)

    def stored(self) -> None:
        """Allow the next `hand_in`: the launcher has written the previous shard."""
        if self._on_its_way.locked():
            self._on_its_way.release()

    def hear(self, message: BeginWith) -> None:
        """Take the next piece of the initial shard."""
        self._pieces.append(message.content)
        if message.last and not self._begins_with.done():
            self._begins_with.set_result(msgspec.msgpack.decode(b"".join(self._pieces), type=Shard))
            self._pieces = []

    async def begins_with(self) -> Shard:
        """Return the initial shard once it is complete."""
        return await self._begins_with
