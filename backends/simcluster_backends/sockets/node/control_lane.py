"""A node's end of the control lane, and the checkpoints that travel on it.

The lane runs in a thread. So heartbeats continue while the algorithm blocks the node's loop, and a
node that has lost its launcher exits even if its algorithm never yields.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TypeVar

import msgspec

from simcluster.checkpoints.shard import Shard
from simcluster.errors import RunError
from simcluster_backends.common.device import NodeDevice
from simcluster_backends.sockets.net.connection import Connection
from simcluster_backends.sockets.net.listener import connect
from simcluster_backends.sockets.net.tls import Tls
from simcluster_backends.sockets.wire import messages as wire
from simcluster_backends.sockets.wire.frame import Frame
from simcluster_backends.sockets.wire.handshake import Handshake, PeerIdentity

JOIN_S = 60.0
"""The limit on a node's attempts to reach its launcher."""

LAST_S = 3.0
"""The time that a node has to end by itself after losing its launcher."""

T = TypeVar("T")


class ControlLane:
    """The connection of node *name* to its launcher.

    *job* is done when the launcher has sent the job, or fails if the launcher refuses. `serve` then
    sets callbacks, which are called in this lane's thread.
    """

    def __init__(self, name: str, host: str, port: int, key: bytes, tls: Tls | None) -> None:
        self.job: concurrent.futures.Future[wire.Job] = concurrent.futures.Future()
        handshake = partial(Handshake, key, PeerIdentity("control", name), accepts=False)
        self._connect = partial(connect, host, port, handshake, timeout_s=JOIN_S, tls=tls)
        self._on_message: Callable[[wire.FromLauncher], None] | None = None
        self._on_lost: Callable[[str], None] = lambda reason: None
        self._report: Callable[[], list[wire.FromNode]] = list
        self._early: list[wire.FromLauncher] = []
        self._connection: Connection | None = None
        self._heard_s = 0.0
        self._closing = False
        self._lost: str | None = None  # the reason for which the launcher is gone
        self._lock = threading.Lock()
        self._ended = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._last: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="control lane", daemon=True)
        self._thread.start()

    def serve(
        self,
        on_message: Callable[[wire.FromLauncher], None],
        on_lost: Callable[[str], None],
        report: Callable[[], list[wire.FromNode]],
    ) -> None:
        """Set the callbacks: *on_message* gets each message, *on_lost* the reason for the loss.

        *report* is called at every heartbeat, and returns the messages to send.
        """
        with self._lock:
            self._on_message = on_message
            self._on_lost = on_lost
            self._report = report
            for message in self._early:
                on_message(message)
            if self._lost is not None:
                on_lost(self._lost)

    def report(self) -> None:
        """Send a report now, before the next heartbeat."""
        self._call(lambda: [self._put(message) for message in self._report()])

    def send(self, message: wire.FromNode) -> None:
        self._call(lambda: self._put(message))

    def send_all(self, messages: Iterable[wire.FromNode]) -> concurrent.futures.Future[None]:
        """Send *messages* one by one; the future is done when the last has left.

        Each message is queued only when the previous one has left, which saves memory.
        """
        assert self._loop is not None, "the launcher has sent the job"
        return asyncio.run_coroutine_threadsafe(self._put_one_by_one(messages), self._loop)

    def hand_in(self, pieces: Iterable[wire.FromNode], outcome: Callable[[int], wire.NodeOutcome]) -> None:
        """Send a final report, then *pieces* one by one, then the result of *outcome*.

        *outcome* is called with the number of bytes that were sent on this lane.
        """

        async def last() -> None:
            for message in self._report():
                self._put(message)
            await self._put_one_by_one(pieces)
            self._put(outcome(self._connection.queue.bytes_sent if self._connection else 0))

        def begin() -> None:
            self._last = asyncio.ensure_future(last())

        self._call(begin)

    def close(self) -> None:
        """End the connection and the thread."""
        self._closing = True
        if self._thread.is_alive():
            self._call(self._end)
            self._thread.join()

    # internal, in the lane's thread

    def _call(self, action: Callable[[], object]) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            with suppress(RuntimeError):  # closed just now: the launcher is gone, which *on_lost* reports
                loop.call_soon_threadsafe(action)

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:
            if self.job.done():
                raise
            self.job.set_exception(error)

    def _end(self) -> None:
        self._ended.set()
        if self._connection is None and self._task is not None:
            self._task.cancel()

    async def _live(self) -> None:
        self._task, self._loop = asyncio.current_task(), asyncio.get_running_loop()
        self._connection = await self._connect(on_open=self._opened)
        self._heard_s = time.monotonic()
        await self._beat()
        await self._connection.end()
        if self._lost is not None and not self._closing:
            await asyncio.sleep(LAST_S)
            if not self._closing:
                print("the launcher is gone and the algorithm does not end: exiting", file=sys.stderr, flush=True)
                os._exit(1)

    async def _beat(self) -> None:
        """Report at every heartbeat until either side ends. Lose the launcher if it is silent."""
        last_s = time.monotonic()
        while not self._ended.is_set():
            heartbeat_s, dead_s = 0.5, wire.LAUNCHER_S
            if self.job.done() and self.job.exception() is None:
                job = self.job.result()
                heartbeat_s, dead_s = job.heartbeat_s, max(job.dead_s, wire.LAUNCHER_S)
                for message in self._report():
                    self._put(message)
            with suppress(TimeoutError):
                async with asyncio.timeout(heartbeat_s):
                    await self._ended.wait()
            now_s = time.monotonic()
            if now_s - last_s > 2 * heartbeat_s + 1.0:
                self._heard_s = now_s  # this machine slept, so the launcher's silence means nothing
            last_s = now_s
            if now_s - self._heard_s > dead_s:
                self._lose(f"the launcher was silent for {dead_s:g} s")

    def _opened(self, connection: Connection) -> None:
        connection.on_frame, connection.on_lost = self._receive, self._lose

    def _receive(self, frame: Frame) -> None:
        self._heard_s = time.monotonic()
        message = wire.read_from_launcher(frame)
        if isinstance(message, wire.Beat):
            return
        if isinstance(message, wire.Job):
            self.job.set_result(message)
            return
        with self._lock:
            if self._on_message is None:
                self._early.append(message)
            else:
                self._on_message(message)

    def _lose(self, reason: str) -> None:
        with self._lock:
            if self._lost is not None or self._closing:
                return
            self._lost = reason
            self._ended.set()
            if not self.job.done():
                self.job.set_exception(RunError(f"the launcher is gone: {reason}"))
            self._on_lost(reason)

    async def _put_one_by_one(self, messages: Iterable[wire.FromNode]) -> None:
        """Put each of *messages* when the previous one has left."""
        for message in messages:
            left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if self._put(message, left):
                with suppress(ConnectionError):  # `_lose` is called, too
                    await left

    def _put(self, message: wire.FromNode, left: asyncio.Future[None] | None = None) -> bool:
        """Put *message* on the connection; return False if there is none."""
        if self._connection is None or not self._connection.is_open:
            return False
        self._connection.put(wire.control_frame(message), left)
        return True


class LauncherChannel:
    """A CheckpointChannel to the launcher, which also receives this node's initial shard."""

    def __init__(self, lane: ControlLane, device: NodeDevice) -> None:
        self._lane = lane
        self._device = device
        self._on_its_way = asyncio.Lock()
        self._pieces: list[bytes] = []
        self._begins_with: asyncio.Future[Shard] = asyncio.get_running_loop().create_future()

    async def hand_in(self, make: Callable[[], Shard]) -> None:
        await self._on_its_way.acquire()  # `stored` releases it
        content = await asyncio.to_thread(lambda: msgspec.msgpack.encode(make()))
        pieces = (wire.ShardPiece(piece, last) for piece, last in wire.in_pieces(content))
        await asyncio.wrap_future(self._lane.send_all(pieces))

    async def aside(self, work: Callable[[], T]) -> T:
        return await self._device.aside(work)

    def stored(self) -> None:
        """Allow the next `hand_in`: the launcher has written the previous shard."""
        if self._on_its_way.locked():
            self._on_its_way.release()

    async def initial_shard(self) -> Shard:
        """Return the shard with which this node begins. A second call waits forever."""
        shard = await self._begins_with
        # Drop the reference: the shard may be as large as the model.
        self._begins_with = asyncio.get_running_loop().create_future()
        return shard

    def hear(self, message: wire.CheckpointPiece) -> None:
        """Take the next piece of the initial shard."""
        self._pieces.append(message.content)
        if message.last and not self._begins_with.done():
            content, self._pieces = b"".join(self._pieces), []
            self._begins_with.set_result(msgspec.msgpack.decode(content, type=Shard))
