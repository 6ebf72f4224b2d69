"""The bridge between a server's desk and an engine in another process of this machine.

The launcher's process has the server, so that it survives any node: while nodes are restarted it says why it takes no
requests. The first node of the placement connects to it over loopback.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import threading
from contextlib import suppress
from typing import Final

from simcluster.errors import RunError
from simcluster.lm.engine.desk import Cancel, EngineLoad, Order
from simcluster.lm.request import Logprobs, Reason, Request
from simcluster.lm.serving.desk import lines
from simcluster.lm.serving.desk.front import RequestBroker
from simcluster.lm.serving.setup import PlacementState

HOST: Final = "127.0.0.1"
HELLO_S: Final = 10.0
LOADING: Final = "the model is being loaded"


class BrokerServer:
    """Listens for the engine of *front*, which must show *key*. A new engine replaces the last one and continues its
    answers; `lose` ends them if none will come.
    """

    def __init__(self, front: RequestBroker) -> None:
        self.key, self.port = secrets.token_hex(32), 0
        self._front, self._why = front, LOADING
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="bridge", daemon=True)
        self._turn, self._present = asyncio.Lock(), dict[asyncio.StreamWriter, str]()

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()
        if not self.port:
            raise RunError("the server's bridge to the first node cannot listen on loopback")

    def lose(self) -> None:
        """End the answers of an engine that no other one will follow."""
        self._front.close(self._why)

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join()

    async def _run(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        try:
            server = await asyncio.start_server(self._meet, HOST, 0, limit=lines.MOST_BYTES)
            self.port = server.sockets[0].getsockname()[1]
        finally:
            self._ready.set()
        await self._over.wait()
        server.close()

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HELLO_S):
                hello = await lines.read_up(reader)
            if isinstance(hello, lines.HelloMessage) and hmac.compare_digest(hello.key.encode(), self.key.encode()):
                first = await lines.read_up(reader)
                if isinstance(first, lines.FailureMessage) and set(self._present.values()) - {hello.node}:
                    return  # another node has the engine by now
                for other in self._present:
                    other.close()  # its node is lost, even if this process does not know yet
                self._present[writer] = hello.node
                async with self._turn:
                    await self._serve(hello.node, first, reader, writer)
        except (TimeoutError, ValueError, asyncio.CancelledError):
            pass  # not an engine, or the bridge is closed: a cancelled connection would be logged
        finally:
            self._present.pop(writer, None)
            writer.close()

    async def _serve(
        self, node: str, message: lines.Up | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Pass orders down and answers up, from the first *message* until the end of the engine on *node*."""
        front, end = self._front, self._front.pause
        self._why = f"{node} is lost: its process ended"
        orders: asyncio.Task[None] | None = None
        try:
            while message is not None:
                match message:
                    case lines.TokenMessage(id, token, logprobs):
                        front.token(id, token, logprobs)
                    case lines.LoadMessage(load):
                        front.load(load)
                    case lines.EndMessage(id, reason, words):
                        front.end(id, reason, words)
                    case lines.FailureMessage(words):
                        self._why, end = words, self.lose
                    case lines.ReadyMessage(placed) if orders is None:
                        front.open(self._loop.call_soon_threadsafe, placed)
                        orders = asyncio.create_task(self._orders(writer))
                message = await lines.read_up(reader)
        finally:
            if orders is not None:
                orders.cancel()
                with suppress(asyncio.CancelledError):
                    await orders
            end()

    async def _orders(self, writer: asyncio.StreamWriter) -> None:
        while (order := await self._front.next()) is not None:
            writer.write(lines.written(_down(order)))
            with suppress(ConnectionError):  # the reader sees the end
                await writer.drain()
        writer.write(lines.written(lines.StopMessage()))


def _down(order: Order) -> lines.Down:
    return lines.RequestMessage(order) if isinstance(order, Request) else lines.CancelMessage(order.id)


class BrokerClient:
    """The other end of a BrokerServer: the source and the sink of an engine. Connect it, then call `ready`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connected(cls, port: int, key: str, node: str) -> BrokerClient:
        """Connect the engine on *node*."""
        reader, writer = await asyncio.open_connection(HOST, port, limit=lines.MOST_BYTES)
        writer.write(lines.written(lines.HelloMessage(key, node)))
        return cls(reader, writer)

    def ready(self, placed: PlacementState | None = None) -> None:
        self._write(lines.ReadyMessage(placed))

    async def failed(self, why: str) -> None:
        """Say why the engine ends, and close."""
        self._write(lines.FailureMessage(why))
        await self.close()

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()

    async def next(self) -> Order | None:
        match await lines.read_down(self._reader):
            case lines.RequestMessage(request):
                return request
            case lines.CancelMessage(id):
                return Cancel(id)
        return None

    def token(self, request: str, token: int, logprobs: Logprobs | None = None) -> None:
        self._write(lines.TokenMessage(request, token, logprobs))

    def end(self, request: str, reason: Reason, message: str = "") -> None:
        self._write(lines.EndMessage(request, reason, message))

    def load(self, load: EngineLoad) -> None:
        self._write(lines.LoadMessage(load))

    def _write(self, message: lines.Up) -> None:
        if not self._writer.is_closing():
            self._writer.write(lines.written(message))
