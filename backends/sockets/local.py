"""A whole cluster in one process and one loop, over real loopback connections with real handshakes.

For tests of the transport's promises, which then take milliseconds a cluster. This file knows meshes and
bodies. It must not know processes or launchers.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from backends.sockets.endpoints import open_socket
from backends.sockets.keys import generate_key
from backends.sockets.loops import run_to_its_end
from backends.sockets.mesh import Mesh
from backends.sockets.transport import INBOX_BYTES, SocketTransport
from simcluster.results.record import Recorder
from simcluster.testing import Crash
from simcluster.testing.owners import Owners

Body: TypeAlias = Callable[[SocketTransport], Awaitable[Any]]


def run_bodies(
    bodies: Sequence[Body],
    *,
    seed: int = 0,
    inbox_bytes: int = INBOX_BYTES,
    timeout_s: float = 60.0,
    uvloop: bool | None = None,
) -> list[Any]:
    """Runs body i as rank i of one cluster; returns each one's result, or the exception that it ended with.

    A body that raises `simcluster.testing.Crash` dies without a goodbye; one that raises anything else dies
    too, and its peers are told why. Raises TimeoutError if not all have ended after *timeout_s*.
    """

    async def run() -> list[Any]:
        async with asyncio.timeout(timeout_s):
            return await _run(bodies, seed, inbox_bytes)

    return run_to_its_end(run(), uvloop)


async def _run(bodies: Sequence[Body], seed: int, inbox_bytes: int) -> list[Any]:
    names = [f"node{rank}" for rank in range(len(bodies))]
    key, run, started_s = generate_key(), secrets.token_bytes(16), time.perf_counter()
    recorders = [Recorder(rank, name, lambda: time.perf_counter() - started_s) for rank, name in enumerate(names)]
    transports = [
        SocketTransport(rank, names, seed, recorders[rank], inbox_bytes=inbox_bytes) for rank in range(len(names))
    ]
    meshes = [Mesh(transport, names, key, run, b"") for transport in transports]
    owners = Owners(len(names))
    owners.watch(asyncio.get_running_loop())
    try:
        for mesh in meshes:
            await mesh.listener.start(open_socket("127.0.0.1", 0, "listen"))
        addresses = [(mesh.listener.host, mesh.listener.port) for mesh in meshes]
        await asyncio.gather(*(mesh.connect(addresses, timeout_s=10.0) for mesh in meshes))
        lives = [_live(transport, body, owners) for transport, body in zip(transports, bodies, strict=True)]
        return await asyncio.gather(*lives, return_exceptions=True)
    finally:
        for mesh in meshes:
            await mesh.close()
        await asyncio.gather(*(transport.close() for transport in transports))


async def _live(transport: SocketTransport, body: Body, owners: Owners) -> Any:
    """A node's life: its body, then a goodbye, or none. What it started and did not await ends with it."""

    async def own() -> Any:
        owners.begin(transport.rank)
        return await body(transport)

    life = asyncio.create_task(own())
    try:
        result = await life
        transport.finish()
        return result
    except Crash:
        await transport.close(crash=True)
        raise
    except BaseException:
        await transport.close()
        raise
    finally:
        owners.end(transport.rank)
