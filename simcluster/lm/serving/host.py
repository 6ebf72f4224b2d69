"""The program of nodes that serve: as `simcluster.lm.serving.program`, with requests from a server.

In the simulator the server is in this process and paces virtual time; real nodes reach it over a BrokerServer.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final

import msgspec

from simcluster.errors import PeerLost
from simcluster.lm.engine.desk import RequestSource, TokenSink
from simcluster.lm.serving import program
from simcluster.lm.serving.desk.bridge import BrokerClient
from simcluster.lm.serving.desk.front import STOPPING, RequestBroker
from simcluster.lm.serving.pacer import pace
from simcluster.lm.serving.program import ServingPart
from simcluster.lm.serving.setup import PlacementState, Setup
from simcluster.runs.record import NodeRecord
from simcluster.runs.recorder import Recorder
from simcluster.transport import Transport

PROGRAM = f"{__name__}:serve"

SEARCHED: Final = (5_000, 10, 10)
"""The garbage collector's thresholds while a server runs here. Unlike a simulated run it lasts for days, and its
requests leave cycles.
"""

_fronts: dict[str, RequestBroker] = {}


class HostingConfig(msgspec.Struct, frozen=True):
    """The configuration: *setup*, and the *port* and *key* of the server's bridge; *port* 0 in its own process."""

    setup: Setup
    key: str
    port: int

    def written(self) -> str:
        return msgspec.json.encode(self).decode()


_decoder = msgspec.json.Decoder(HostingConfig)


def prepare(config_json: str) -> None:
    """Open the model's file before the clock starts."""
    program.prepare(_decoder.decode(config_json).setup.written())


@contextmanager
def in_this_process(front: RequestBroker, key: str) -> Iterator[None]:
    """Let programs with *key* in this process serve *front*; close it if they fail.

    A node that fails does not close it: the others may continue its answers.
    """
    _fronts[key] = front
    try:
        yield
    except BaseException as error:
        front.close(_why(error))
        raise
    finally:
        del _fronts[key]


async def serve(node: Transport, recorder: Recorder, config_json: str) -> NodeRecord:
    """Do this node's part; the first one of a placement has the engine."""
    hosting = _decoder.decode(config_json)
    part = ServingPart(recorder, hosting.setup)
    if hosting.port == 0:
        gc.set_threshold(*SEARCHED)  # the simulator, which has set its own for a run, restores the process's at its end
        return await _paced(node, part, _fronts[hosting.key])
    return await _bridged(node, part, hosting)


async def _paced(node: Transport, part: ServingPart, front: RequestBroker) -> NodeRecord:
    @asynccontextmanager
    async def desk(placed: PlacementState) -> AsyncIterator[tuple[RequestSource, TokenSink]]:
        front.open(placed=placed)
        pacing = asyncio.create_task(pace(front))
        try:
            yield front, front
        except BaseException:
            front.pause()
            raise
        finally:
            pacing.cancel()

    return await part.take(node, desk)


async def _bridged(node: Transport, part: ServingPart, hosting: HostingConfig) -> NodeRecord:
    has_had_desk = False

    @asynccontextmanager
    async def desk(placed: PlacementState) -> AsyncIterator[tuple[RequestSource, TokenSink]]:
        nonlocal has_had_desk
        has_had_desk = True
        far = await BrokerClient.connected(hosting.port, hosting.key, node.name)
        try:
            far.ready(placed)
            yield far, far
        except BaseException:
            await far.close()  # another group may follow, which continues the answers
            raise
        await far.failed(STOPPING)

    try:
        return await part.take(node, desk)
    except BaseException as error:
        if has_had_desk:
            with suppress(OSError):
                far = await BrokerClient.connected(hosting.port, hosting.key, node.name)
                await far.failed(_why(error))
        raise _loss_in(error) or error from None


def _loss_in(error: BaseException) -> PeerLost | None:
    """Return the first loss of a peer in *error*, which may be a group."""
    if isinstance(error, BaseExceptionGroup):
        return next((loss for one in error.exceptions if (loss := _loss_in(one)) is not None), None)
    return error if isinstance(error, PeerLost) else None


def _why(error: BaseException) -> str:
    """Return why the engine ends: the lost node's name, if one is lost; an interrupt stops the server."""
    loss = _loss_in(error)
    if loss is not None:
        return str(loss)
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, KeyboardInterrupt):
        return STOPPING
    return f"the engine failed: {type(error).__name__}: {error}"
