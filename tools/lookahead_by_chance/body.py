"""The acts of the ranks of a program."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor

from simcluster.collectives import operations
from simcluster.collectives.subgroup import NamedSubgroup, subgroup
from simcluster.errors import PeerLost
from simcluster.payload import pack
from simcluster.transport import ANY, Cost, Transport
from tests.backends.sim.lookahead.oracle import bits, nothing, now, values
from tests.support.clusters import IDEAL
from tools.lookahead_by_chance.program import Aside, Operation, Phase, Program


class Acts:
    """The acts of one rank in *program*. *log* has (name, end time, result) of each act."""

    def __init__(self, program: Program, node: Transport) -> None:
        self.log: list[tuple[str, float, object]] = []
        self._program, self._node = program, node
        self._rank, self._size = node.rank, node.size

    async def run(self) -> list[tuple[str, float, object]]:
        for number, phase in enumerate(self._program.phases):
            async with asyncio.TaskGroup() as group:
                group.create_task(self._collectives(number, phase))
                if self._rank in phase.asides:
                    group.create_task(self._logged("aside", self._aside(f"aside{number}", phase.asides[self._rank])))
                group.create_task(self._logged("received", self._receive_asides(f"aside{number}", phase)))
            await self._logged(phase.after, self._after(number, phase))
        return self.log

    async def _logged(self, what: str, act: Coroutine[Any, Any, object]) -> None:
        try:
            result = await act
        except (PeerLost, TimeoutError) as error:
            result = f"{type(error).__name__}: {error}"
        self.log.append((what, now(), result))

    async def _collectives(self, number: int, phase: Phase) -> None:
        """Pause, then take part in the collectives of *phase*."""
        pause_s, how = phase.pauses_s[self._rank], phase.how[self._rank]
        if how == "sleep":
            await asyncio.sleep(pause_s)
        elif how == "works":
            for _ in range(2):
                await self._node.compute(_nothing, cost=_work(pause_s / 2))
        elif pause_s:
            await self._node.compute(_nothing, cost=_work(pause_s))
        seed = 100 * (self._program.seed % 1000 + number)
        async with asyncio.TaskGroup() as group:
            for place, (ranks, operation) in enumerate(phase.groups):
                if self._rank in ranks:
                    name = f"g{number}-{place}"
                    inside = NamedSubgroup(self._node, ranks, name) if phase.is_named else subgroup(self._node, ranks)
                    act = self._limited(phase, perform(operation, inside, f"c{number}", seed))
                    group.create_task(self._logged("collective", act))
            if phase.second is not None:
                act = perform(phase.second, self._node, f"d{number}", seed + 5000)
                group.create_task(self._logged("second", act))

    async def _limited(self, phase: Phase, act: Coroutine[Any, Any, object]) -> object:
        rank, limit_s = phase.timeout or (-1, 0.0)
        if rank != self._rank:
            return await act
        async with asyncio.timeout(limit_s):
            return await act

    async def _aside(self, tag: str, aside: Aside) -> None:
        to, pause_s = (self._rank + aside.shift) % self._size, aside.pause_s
        if aside.kind == "compute":
            await asyncio.sleep(0)
            await self._node.compute(_nothing, cost=_work(max(pause_s, 1e-6)))
        elif aside.kind == "sleep":
            for _ in range(3):
                await asyncio.sleep(pause_s)
        elif aside.kind == "recv":
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s + 1e-4):
                    await self._node.recv(ANY, f"{tag}, which none sends")
        elif aside.kind == "timeout":
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await asyncio.sleep(1.0)
        else:
            await asyncio.sleep(pause_s)
            for length in _lengths(aside):
                await self._node.send(to, tag, pack(nothing(length)))

    async def _receive_asides(self, tag: str, phase: Phase) -> list[int]:
        sizes_B = []
        for source, aside in phase.asides.items():
            if (source + aside.shift) % self._size == self._rank:
                for _ in _lengths(aside):
                    sizes_B.append((await self._node.recv(source, tag)).size_bytes)
        return sizes_B

    async def _after(self, number: int, phase: Phase) -> object:
        if phase.after == "compute":
            await self._node.compute(_nothing, cost=_work(1e-3))
        elif phase.after == "shift":
            tag, content = f"after{number}", pack(nothing(997))
            async with asyncio.TaskGroup() as group:
                sending = self._node.send((self._rank + phase.shift) % self._size, tag, content)
                group.create_task(self._logged("sent", sending))
                receiving = self._receive((self._rank - phase.shift) % self._size, tag)
                group.create_task(self._logged("came", receiving))
        elif phase.after == "serve":
            return await (self._serve(number) if self._rank == 0 else self._ask(number))
        return None

    async def _receive(self, source: int, tag: str) -> int:
        return (await self._node.recv(source, tag)).size_bytes

    async def _ask(self, number: int) -> int:
        await self._node.send(0, f"push{number}", pack(nothing(997)))
        return await self._receive(0, f"reply{number}")

    async def _serve(self, number: int) -> list[int]:
        """Receive a push from each other rank, then reply to the ranks in the order of their
        pushes.
        """
        others = [(await self._node.recv(ANY, f"push{number}")).source for _ in range(self._size - 1)]
        for other in others:
            await self._node.send(other, f"reply{number}", pack(nothing(997)))
        return others


async def perform(operation: Operation, node: Transport, tag: str, seed: int) -> object:
    """Take part in *operation*. Return digests of its results."""
    size = node.size
    rank = node.rank
    name = operation.name
    root = operation.root
    length = operation.length + (rank if operation.is_uneven and name == "all_gather" else 0)
    run = partial(getattr(operations, name), node, schedule=operation.schedule, **operation.settings)

    def made(number: int = 0, length: int = length) -> Tensor:
        dtype = getattr(torch, operation.dtype)
        if not operation.has_values:
            return torch.empty(length, dtype=dtype, device="meta")
        return values(length, dtype, seed + 10 * rank + number)

    if name == "barrier":
        found = await run(tag=tag)
    elif name == "broadcast":
        found = await run([made()] if rank == root or operation.schedule == "ring" else [], tag=tag, root=root)
    elif name == "scatter":
        found = await run([made(peer) for peer in range(size)] if rank == root else [], tag=tag, root=root)
    elif name in ("gather", "reduce"):
        found = await run(made(), tag=tag, root=root)
    elif name == "all_to_all":
        lengths = [length * peer % 5003 if operation.is_uneven else length for peer in range(size)]
        found = await run([made(peer, lengths[peer]) for peer in range(size)], tag=tag)
    else:
        found = await run(made(), tag=tag)
    return _digest(found)


def _digest(found: Any) -> object:
    if isinstance(found, Tensor):
        return (tuple(found.shape), str(found.dtype)) if found.is_meta else hashlib.sha256(bits(found)).hexdigest()
    return [_digest(each) for each in found] if found is not None else None


def _lengths(aside: Aside) -> list[int]:
    """Return the lengths of the vectors that *aside* sends, or none if it is not a send."""
    return {"send": [997], "burst": [5000, 10, 10]}.get(aside.kind, [])


def _work(lasts_s: float) -> Cost:
    return Cost(IDEAL.flops_per_s * lasts_s)


def _nothing() -> None:
    """Compute nothing."""
