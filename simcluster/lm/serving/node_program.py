"""The program of a server's nodes: `simcluster.lm.serving.program` with a live desk.

In the simulator, the server is in this process and paces virtual time. Real nodes are other
processes, which reach the server through a BrokerServer.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final

import msgspec

from simcluster.errors import PeerLost
from simcluster.lm.engine.request_source import RequestSource, TokenSink
from simcluster.lm.serving import program
from simcluster.lm.serving.desk.broker_client import BrokerClient
from simcluster.lm.serving.desk.request_broker import STOPPING, RequestBroker
from simcluster.lm.serving.pacer import pace
from simcluster.lm.serving.program import ServingPart
from simcluster.lm.serving.setup import PlacementState, Setup
from simcluster.runs.record import NodeRecord
from simcluster.runs.recorder import Recorder
from simcluster.transport import Transport

PROGRAM = f"{__name__}:serve"

SEARCHED: Final = (5_000, 10, 10)
"""The garbage collector's thresholds while a server runs in this process.

A simulated run collects rarely, because it is short. A server runs for days, and its requests leave
reference cycles.
"""

_fronts: dict[str, RequestBroker] = {}


class HostingConfig(msgspec.Struct, frozen=True):
    """The configuration of a node: its *setup*, and the *port* and *key* of the BrokerServer.

    *port* is 0 if the server is in this process.
    """

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
    """Let programs with *key* in this process serve *front*. If the block raises, close *front*.

    The failure of a single node does not close *front*: the other nodes may continue its answers.
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
    """Run this node until the server stops. The first node of a placement runs the engine."""
    recorder.sum_up()
    hosting = _decoder.decode(config_json)
    part = ServingPart(recorder, hosting.setup)
    if hosting.port == 0:
        gc.set_threshold(*SEARCHED)  # the simulator restores the old thresholds after the run
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
            await far.close()  # not `failed`: the next group may continue the answers
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
    """Return the first PeerLost in *error*, which may be an exception group, or None."""
    if isinstance(error, BaseExceptionGroup):
        return next((loss for one in error.exceptions if (loss := _loss_in(one)) is not None), None)
    return error if isinstance(error, PeerLost) else None


def _why(error: BaseException) -> str:
    """Return the message for requests that are open when the engine ends with *error*."""
    loss = _loss_in(error)
    if loss is not None:
        return str(loss)
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, KeyboardInterrupt):
        return STOPPING
    return f"the engine failed: {type(error).__name__}: {error}"
