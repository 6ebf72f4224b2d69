"""A whole cluster in one process and one loop, over real gloo connections on loopback, for testing the promises."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import torch
from simcluster_backends.common.event_loop import run_to_its_end
from simcluster_backends.common.inbox import INBOX_BYTES
from simcluster_backends.common.precise_loop import asyncios_own
from simcluster_backends.torch.device_transfers import DeviceTransfers, card_of, carriers
from simcluster_backends.torch.group import HashStore, TorchGroup, WorldPlace
from simcluster_backends.torch.member import TorchMember, TorchTransport

from simcluster.compute import HOST
from simcluster.runs.recorder import Recorder
from simcluster.testing import Crash
from simcluster.testing.harness import Owners

Body: TypeAlias = Callable[[TorchTransport], Awaitable[Any]]


def run_bodies(
    bodies: Sequence[Body], *, seed: int = 0, inbox_bytes: int = INBOX_BYTES, timeout_s: float = 60.0,
    device: torch.device = HOST,
) -> list[Any]:  # fmt: skip
    """Run body i as rank i of one cluster; return each body's result or exception.

    A body that raises `simcluster.testing.Crash` dies silently; with any other exception it dies and its peers learn
    why. Raise TimeoutError if not all have ended after *timeout_s*. Tensors on *device* travel from there if they can.
    """
    store, size = HashStore(), len(bodies)
    places = [WorldPlace(rank, size, True) for rank in range(size)]
    cards = [f"{card} of {rank}" if (card := card_of(device)) else "" for rank in range(size)]
    with ThreadPoolExecutor(size) as threads:  # creating a group blocks until all ranks have come
        groups = list(threads.map(lambda place: TorchGroup(store, place, 30.0), places))
        ways = list(threads.map(lambda group, place: carriers(group, store, place, device, cards), groups, places))

    async def run() -> list[Any]:
        async with asyncio.timeout(timeout_s):
            return await _run(bodies, groups, ways, seed, inbox_bytes, device)

    return run_to_its_end(run(), asyncios_own())


async def _run(
    bodies: Sequence[Body], groups: Sequence[TorchGroup], ways: Sequence[Mapping[int, DeviceTransfers]], seed: int,
    inbox_bytes: int, device: torch.device,
) -> list[Any]:  # fmt: skip
    names = [f"node{rank}" for rank in range(len(bodies))]
    started_s = time.perf_counter()
    recorders = [Recorder(rank, name, lambda: time.perf_counter() - started_s) for rank, name in enumerate(names)]
    members = [
        TorchMember(rank, names, recorder, groups[rank], inbox_bytes=inbox_bytes, device=device, carriers=ways[rank])
        for rank, recorder in enumerate(recorders)
    ]
    owners = Owners(len(names))
    owners.watch(asyncio.get_running_loop())
    try:
        lives = [
            _live(member, TorchTransport(member, seed), body, owners)
            for member, body in zip(members, bodies, strict=True)
        ]
        return await asyncio.gather(*lives, return_exceptions=True)
    finally:
        await asyncio.gather(*(member.close() for member in members))


async def _live(member: TorchMember, node: TorchTransport, body: Body, owners: Owners) -> Any:
    """Run *body* and say goodbye, except after a Crash. Tasks that it did not await end with it."""

    async def own() -> Any:
        owners.begin(member.rank)
        return await body(node)

    life = asyncio.create_task(own())
    try:
        result = await life
        await member.finish()
        return result
    except Crash:
        await member.close()
        raise
    except BaseException as error:
        await member.finish(f"failed: {type(error).__name__}")
        raise
    finally:
        owners.end(member.rank)
