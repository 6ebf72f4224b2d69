"""The program of nodes that serve: as `simcluster.serving.program`, with requests from a server.

In the simulator the server is in this process and paces virtual time; real nodes reach it over a Bridge.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import msgspec

from simcluster.errors import PeerLost
from simcluster.inference.engine.desk import Sink, Source
from simcluster.runs.record import NodeRecord
from simcluster.runs.recorder import Recorder
from simcluster.serving import program
from simcluster.serving.bridge import FarFront
from simcluster.serving.front import Front
from simcluster.serving.pacer import pace
from simcluster.serving.program import take_part
from simcluster.serving.setup import Setup
from simcluster.transport import Transport

PROGRAM = f"{__name__}:serve"

WATCH: Final = "watch"
"""The tag of messages that are never sent: waiting for one notices the loss of a peer."""

OUTLIVE_S: Final = 5.0

_fronts: dict[str, Front] = {}


class Hosting(msgspec.Struct, frozen=True):
    """The configuration: *setup*, and the *port* and *key* of the server's bridge; *port* 0 in its own process."""

    setup: Setup
    key: str
    port: int

    def written(self) -> str:
        return msgspec.json.encode(self).decode()


_decoder = msgspec.json.Decoder(Hosting)


def prepare(config_json: str) -> None:
    """Open the model's file before the clock starts."""
    program.prepare(_decoder.decode(config_json).setup.written())


@contextmanager
def in_this_process(front: Front, key: str) -> Iterator[None]:
    """Let programs with *key* in this process serve *front*."""
    _fronts[key] = front
    try:
        yield
    finally:
        del _fronts[key]


async def serve(node: Transport, recorder: Recorder, config_json: str) -> NodeRecord:
    """Do this node's part; the first one of the placement has the engine."""
    hosting = _decoder.decode(config_json)
    first = hosting.setup.layout.ranks[0]
    if node.rank != first:
        try:
            return await take_part(node, recorder, hosting.setup, _no_desk)
        except BaseException as error:
            if _loss_in(error) is not None:
                await _outlive(node, first)
            raise
    if hosting.port == 0:
        return await _paced(node, recorder, hosting.setup, _fronts[hosting.key])
    return await _bridged(node, recorder, hosting)


def _no_desk() -> tuple[Source, Sink]:
    raise AssertionError("only the first node has a desk")


async def _paced(node: Transport, recorder: Recorder, setup: Setup, front: Front) -> NodeRecord:
    pacing: list[asyncio.Task[None]] = []

    def desk() -> tuple[Source, Sink]:
        front.open()
        pacing.append(asyncio.create_task(pace(front)))
        return front, front

    try:
        return await take_part(node, recorder, setup, desk)
    except BaseException as error:
        front.close(_why(error))
        raise
    finally:
        for task in pacing:
            task.cancel()


async def _bridged(node: Transport, recorder: Recorder, hosting: Hosting) -> NodeRecord:
    far = await FarFront.connected(hosting.port, hosting.key)

    def desk() -> tuple[Source, Sink]:
        far.ready()
        return far, far

    try:
        async with asyncio.TaskGroup() as tasks:
            others = [rank for rank in hosting.setup.layout.ranks if rank != node.rank]
            watches = [tasks.create_task(node.recv(rank, WATCH)) for rank in others]  # raises if the peer is lost
            record = await take_part(node, recorder, hosting.setup, desk)
            for watch in watches:
                watch.cancel()
    except BaseException as error:
        await far.failed(_why(error))
        raise _loss_in(error) or error from None
    await far.failed("the server is stopping")
    return record


async def _outlive(node: Transport, first: int) -> None:
    """Wait until the *first* node has noticed the loss that ended this one, too: it would blame this one otherwise."""
    with suppress(PeerLost, TimeoutError):
        async with asyncio.timeout(OUTLIVE_S):
            await node.recv(first, WATCH)


def _loss_in(error: BaseException) -> PeerLost | None:
    """Return the first loss of a peer in *error*, which may be a group."""
    if isinstance(error, BaseExceptionGroup):
        return next((loss for one in error.exceptions if (loss := _loss_in(one)) is not None), None)
    return error if isinstance(error, PeerLost) else None


def _why(error: BaseException) -> str:
    """Return why the engine ends: the lost node's name, if one is lost."""
    loss = _loss_in(error)
    if loss is not None:
        return str(loss)
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"the engine failed: {type(error).__name__}: {error}"
