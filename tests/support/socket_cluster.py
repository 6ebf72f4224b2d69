"""A whole cluster in one process and one loop, over real loopback connections with real handshakes.

For tests of the transport's promises, which then take milliseconds per cluster.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, TypeAlias

from simcluster_backends.common.event_loop import run_to_its_end
from simcluster_backends.common.inbox import INBOX_BYTES
from simcluster_backends.common.shortcuts import kept_shortcuts
from simcluster_backends.sockets.net.addresses import open_socket
from simcluster_backends.sockets.node.member import SocketMember
from simcluster_backends.sockets.node.mesh import Mesh
from simcluster_backends.sockets.node.order import loop_factory
from simcluster_backends.sockets.node.transport import SocketTransport
from simcluster_backends.sockets.wire.keys import generate_key

from simcluster.runs.recorder import Recorder
from simcluster.testing import ComesBack, Crash
from simcluster.testing.harness import Owners

Body: TypeAlias = Callable[[SocketTransport], Awaitable[Any]]


def run_bodies(
    bodies: Sequence[Body],
    *,
    seed: int = 0,
    inbox_bytes: int = INBOX_BYTES,
    timeout_s: float = 60.0,
    uvloop: bool | None = None,
    resets_every_s: float | None = None,
    shortcuts: bool | str = True,
) -> list[Any]:
    """Run body i as rank i of one cluster; return each body's result or exception.

    A body that raises `simcluster.testing.Crash` dies without a goodbye, and one that raises `ComesBack` is restarted;
    with any other exception it dies and its peers learn why. Raise TimeoutError after *timeout_s*. Every
    *resets_every_s* all connections between living nodes break. *shortcuts*: see simcluster_backends.common.shortcuts.
    """

    async def run() -> list[Any]:
        async with asyncio.timeout(timeout_s):
            cluster = _Cluster(len(bodies), seed, inbox_bytes, kept_shortcuts(shortcuts))
            try:
                await cluster.connect()
                if resets_every_s is not None:
                    cluster.reset_every(resets_every_s)
                lives = [cluster.live(rank, body) for rank, body in enumerate(bodies)]
                return await asyncio.gather(*lives, return_exceptions=True)
            finally:
                await cluster.close()

    return run_to_its_end(run(), loop_factory(uvloop))


class _Cluster:
    """All nodes and their state."""

    def __init__(self, size: int, seed: int, inbox_bytes: int, kept: Collection[str]) -> None:
        self._names = [f"node{rank}" for rank in range(size)]
        self._seed, self._inbox_bytes, self._kept = seed, inbox_bytes, kept
        self._key, self._run, started_s = generate_key(), secrets.token_bytes(16), time.perf_counter()
        self._recorders = [
            Recorder(rank, name, lambda: time.perf_counter() - started_s) for rank, name in enumerate(self._names)
        ]
        self._gone: dict[int, str] = {}
        self._resetting: asyncio.TimerHandle | None = None
        self._coming = asyncio.Lock()
        self._owners = Owners(size)
        self._owners.watch(asyncio.get_running_loop())
        self._meshes = [self._mesh(rank) for rank in range(size)]

    async def connect(self) -> None:
        """Connect every node to every other."""
        for mesh in self._meshes:
            await mesh.listener.start(open_socket("127.0.0.1", 0, "listen"))
        await asyncio.gather(*(mesh.connect(self._addresses, timeout_s=60.0) for mesh in self._meshes))

    async def live(self, rank: int, body: Body) -> Any:
        """Run *body*, then say goodbye, except after a Crash. Tasks that a life did not await end with it."""
        while True:
            try:
                return await self._live(rank, body)
            except ComesBack:
                await self._come_back(rank)

    def reset_every(self, interval_s: float) -> None:
        """Break all connections now, and again after *interval_s*, which grows: any machine gets further in between."""
        for rank, mesh in enumerate(self._meshes):
            for peer in range(rank):
                mesh.member.reset(peer)
        self._resetting = asyncio.get_running_loop().call_later(interval_s, self.reset_every, 1.1 * interval_s)

    async def close(self) -> None:
        if self._resetting is not None:
            self._resetting.cancel()
        for mesh in self._meshes:
            await mesh.listener.close()
        await asyncio.gather(*(mesh.member.close() for mesh in self._meshes))

    @property
    def _addresses(self) -> list[tuple[str, int]]:
        return [(mesh.listener.host, mesh.listener.port) for mesh in self._meshes]

    def _mesh(self, rank: int) -> Mesh:
        member = SocketMember(rank, self._names, self._recorders[rank], inbox_bytes=self._inbox_bytes)
        return Mesh(member, self._key, self._run, b"", shares="memory" in self._kept)

    async def _come_back(self, rank: int) -> None:
        """Restart *rank*. One at a time, so that every node knows all addresses."""
        async with self._coming:
            await self._meshes[rank].listener.close()
            self._recorders[rank].incarnation += 1
            mesh = self._meshes[rank] = self._mesh(rank)
            await mesh.listener.start(open_socket("127.0.0.1", 0, "listen"))
            gone = {other: reason for other, reason in self._gone.items() if other != rank}
            await mesh.come_late(self._recorders[rank].incarnation, self._addresses, gone, timeout_s=60.0)
            del self._gone[rank]

    async def _live(self, rank: int, body: Body) -> Any:
        member = self._meshes[rank].member
        transport = SocketTransport(member, self._seed, kept=self._kept)

        async def own() -> Any:
            self._owners.begin(rank)
            return await body(transport)

        life = asyncio.create_task(own())
        try:
            result = await life
            member.finish()
            return result
        except BaseException as error:
            self._gone[rank] = f"{type(error).__name__}: {error}"
            await member.close(crash=isinstance(error, Crash))
            raise
        finally:
            self._owners.end(rank)
