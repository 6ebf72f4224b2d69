"""The bridge between a server's desk and an engine in another process of this machine.

The server runs in the launcher's process, so it survives the loss of any node. While nodes restart,
it refuses requests with the reason. The first node of the placement connects to it over loopback.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import threading
from contextlib import suppress
from typing import Final

from simcluster.errors import RunError
from simcluster.lm.engine.request_source import AnswerEnd, AnswerToken, Cancel, EngineLoad, Order
from simcluster.lm.request import Request
from simcluster.lm.serving.desk.broker_messages import (
    MOST_BYTES,
    FailureMessage,
    HelloMessage,
    LoadMessage,
    ReadyMessage,
    RequestMessage,
    StopMessage,
    Up,
    read_down,
    read_up,
    written,
)
from simcluster.lm.serving.desk.request_broker import RequestBroker
from simcluster.lm.serving.setup import PlacementState

HOST: Final = "127.0.0.1"
HELLO_S: Final = 10.0
LOADING: Final = "the model is being loaded"


class BrokerServer:
    """A listener on loopback that connects an engine with *front*. The engine must present *key*.

    A new engine replaces the previous one and continues its answers. If no new engine will come,
    `lose` ends those answers because of *why*.
    """

    def __init__(self, front: RequestBroker) -> None:
        self.key = secrets.token_hex(32)
        self.port = 0
        self._front = front
        self.why = LOADING
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="bridge", daemon=True)
        self._turn = asyncio.Lock()
        self._present = dict[asyncio.StreamWriter, str]()

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()
        if not self.port:
            raise RunError("the server's bridge to the first node cannot listen on loopback")

    def lose(self) -> None:
        """End all open answers with an error, because no engine will continue them."""
        self._front.close(self.why)

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join()

    async def _run(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        try:
            server = await asyncio.start_server(self._meet, HOST, 0, limit=MOST_BYTES)
            self.port = server.sockets[0].getsockname()[1]
        finally:
            self._ready.set()
        await self._over.wait()
        server.close()

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HELLO_S):
                hello = await read_up(reader)
            if isinstance(hello, HelloMessage) and hmac.compare_digest(hello.key.encode(), self.key.encode()):
                first = await read_up(reader)
                if isinstance(first, FailureMessage) and set(self._present.values()) - {hello.node}:
                    return  # an old engine failed, but another node has the new one
                for other in self._present:
                    other.close()  # its node is lost, though this process may not know yet
                self._present[writer] = hello.node
                async with self._turn:
                    await self._serve(hello.node, first, reader, writer)
        except (TimeoutError, ValueError, asyncio.CancelledError):
            pass  # not an engine, or closed; asyncio would log a cancellation
        finally:
            self._present.pop(writer, None)
            writer.close()

    async def _serve(
        self, node: str, message: Up | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Pass orders to the engine on *node*, and its answers to the desk, until the engine ends.

        *message* is the engine's first message after its HelloMessage.
        """
        front, end = self._front, self._front.pause
        self.why = f"{node} is lost: its process ended"
        orders: asyncio.Task[None] | None = None
        try:
            while message is not None:
                match message:
                    case AnswerToken():
                        front.token(message)
                    case LoadMessage(load):
                        front.load(load)
                    case AnswerEnd():
                        front.end(message)
                    case FailureMessage(words):
                        self.why, end = words, self.lose
                    case ReadyMessage(placed) if orders is None:
                        front.open(self._loop.call_soon_threadsafe, placed)
                        orders = asyncio.create_task(self._orders(writer))
                message = await read_up(reader)
        finally:
            if orders is not None:
                orders.cancel()
                with suppress(asyncio.CancelledError):
                    await orders
            end()

    async def _orders(self, writer: asyncio.StreamWriter) -> None:
        while (order := await self._front.next()) is not None:
            writer.write(written(RequestMessage(order) if isinstance(order, Request) else order))
            with suppress(ConnectionError):  # `_serve` notices the end, and cancels this task
                await writer.drain()
        writer.write(written(StopMessage()))


class BrokerClient:
    """The source and sink of an engine, connected to a BrokerServer.

    Create it with `connected`, then call `ready`.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connected(cls, port: int, key: str, node: str) -> BrokerClient:
        """Connect the engine on *node* to the BrokerServer at *port*, which expects *key*."""
        reader, writer = await asyncio.open_connection(HOST, port, limit=MOST_BYTES)
        writer.write(written(HelloMessage(key, node)))
        return cls(reader, writer)

    def ready(self, placed: PlacementState | None = None) -> None:
        self._write(ReadyMessage(placed))

    async def failed(self, why: str) -> None:
        """Send the reason for the engine's end, and close the connection."""
        self._write(FailureMessage(why))
        await self.close()

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()

    async def next(self) -> Order | None:
        match await read_down(self._reader):
            case RequestMessage(request):
                return request
            case Cancel() as order:
                return order
        return None

    def token(self, token: AnswerToken) -> None:
        self._write(token)

    def end(self, end: AnswerEnd) -> None:
        self._write(end)

    def load(self, load: EngineLoad) -> None:
        self._write(LoadMessage(load))

    def _write(self, message: Up) -> None:
        if not self._writer.is_closing():
            self._writer.write(written(message))
