"""A node's end of the control lane.

It runs in a thread, so that heartbeats continue while the algorithm blocks the node's loop, and so that a node that has
lost its launcher exits even if its algorithm never yields.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from simcluster.errors import RunError
from simcluster_backends.sockets.net.connection import Connection
from simcluster_backends.sockets.net.listener import connect
from simcluster_backends.sockets.net.tls import Tls
from simcluster_backends.sockets.wire.frame import Frame
from simcluster_backends.sockets.wire.handshake import Handshake, Identity
from simcluster_backends.sockets.wire.messages import (
    Beat,
    FromLauncher,
    FromNode,
    Job,
    Outcome,
    control_frame,
    read_from_launcher,
)

JOIN_S = 60.0
"""How long a node tries to reach its launcher."""

LAUNCHER_S = 5.0
"""A launcher may be silent this long, or `dead_s` if longer: it may share its process with a notebook or a test."""
LAST_S = 3.0
"""How long a node may take to end by itself after losing its launcher."""


class ControlLane:
    """The connection to the launcher as *name*. *job* is set when the launcher has sent it, or fails if it refused.

    `serve` then sets two callbacks, both called in this lane's thread: for each message, and for the loss of the
    launcher.
    """

    def __init__(self, name: str, host: str, port: int, key: bytes, tls: Tls | None = None) -> None:
        self.job: concurrent.futures.Future[Job] = concurrent.futures.Future()
        self._make_handshake = partial(Handshake, key, Identity("control", name), accepts=False)
        self._host, self._port, self._tls = host, port, tls
        self._on_message: Callable[[FromLauncher], None] | None = None
        self._on_lost: Callable[[str], None] = lambda reason: None
        self._report: Callable[[], list[FromNode]] = list
        self._early: list[FromLauncher] = []
        self._connection: Connection | None = None
        self._heard_s = 0.0
        self._closing = False
        self._lost: str | None = None  # why the launcher is gone
        self._lock = threading.Lock()
        self._ended: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._last: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="control lane", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def serve(
        self,
        on_message: Callable[[FromLauncher], None],
        on_lost: Callable[[str], None],
        report: Callable[[], list[FromNode]],
    ) -> None:
        """Call *on_message* for each message, *on_lost* once, and *report* at every heartbeat for messages to send."""
        with self._lock:
            self._on_message, self._on_lost, self._report = on_message, on_lost, report
            for message in self._early:
                on_message(message)
            if self._lost is not None:
                on_lost(self._lost)

    def send(self, message: FromNode) -> None:
        self._call(lambda: self._put(message))

    def send_all(self, messages: Iterable[FromNode]) -> concurrent.futures.Future[None]:
        """Send *messages* one by one, so that no queue of them takes memory; done when the last has left."""

        async def send() -> None:
            for message in messages:
                await self._put_and_wait(message)

        assert self._loop is not None, "the launcher has sent the job"
        return asyncio.run_coroutine_threadsafe(send(), self._loop)

    def hand_in(self, pieces: Iterable[FromNode], outcome: Callable[[int], Outcome]) -> None:
        """Send a final report, *pieces* one by one, then *outcome*, made from the number of bytes sent."""

        async def last() -> None:
            for message in self._report():
                self._put(message)
            for piece in pieces:
                await self._put_and_wait(piece)
            self._put(outcome(self._connection.bytes_sent if self._connection else 0))

        def begin() -> None:
            self._last = asyncio.ensure_future(last())

        self._call(begin)

    def close(self) -> None:
        """End the connection and the thread."""
        self._closing = True
        if self._thread.is_alive():
            self._call(self._end)
            self._thread.join()

    # inside, in the lane's thread

    def _call(self, action: Callable[[], object]) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            try:
                loop.call_soon_threadsafe(action)
            except RuntimeError:
                return  # closed just now: the launcher is gone, which *on_lost* reports

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:
            if not self.job.done():
                self.job.set_exception(error)
            else:
                raise

    def _end(self) -> None:
        assert self._ended is not None
        assert self._task is not None
        self._ended.set()
        if self._connection is None:
            self._task.cancel()

    async def _live(self) -> None:
        self._ended, self._task = asyncio.Event(), asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        self._connection = await connect(
            self._host, self._port, self._make_handshake, on_open=self._opened, timeout_s=JOIN_S, tls=self._tls
        )
        self._heard_s = self._loop.time()
        await self._beat()
        await self._connection.end()
        if self._lost is not None and not self._closing:
            await asyncio.sleep(LAST_S)
            if not self._closing:
                print(
                    "the launcher is gone and the algorithm does not end: exiting",
                    file=sys.stderr,
                    flush=True,
                )
                os._exit(1)

    async def _beat(self) -> None:
        """Report at every heartbeat and expect the launcher's, until either side ends."""
        assert self._loop is not None
        assert self._ended is not None
        last_s = self._loop.time()
        while not self._ended.is_set():
            heartbeat_s, dead_s = 0.5, LAUNCHER_S
            if self.job.done() and self.job.exception() is None:
                job = self.job.result()
                heartbeat_s, dead_s = job.heartbeat_s, max(job.dead_s, LAUNCHER_S)
                for message in self._report():
                    self._put(message)
            try:
                async with asyncio.timeout(heartbeat_s):
                    await self._ended.wait()
            except TimeoutError:
                pass
            now_s = self._loop.time()
            if now_s - last_s > 2 * heartbeat_s + 1.0:
                self._heard_s = now_s  # this machine slept: its own silence, not the launcher's
            last_s = now_s
            if now_s - self._heard_s > dead_s:
                self._lose(f"the launcher was silent for {dead_s:g} s")

    def _opened(self, connection: Connection) -> None:
        connection.on_frame = self._receive
        connection.on_lost = self._lose

    def _receive(self, frame: Frame) -> None:
        assert self._loop is not None
        self._heard_s = self._loop.time()
        message = read_from_launcher(frame)
        if isinstance(message, Beat):
            return
        if isinstance(message, Job):
            self.job.set_result(message)
            return
        with self._lock:
            if self._on_message is None:
                self._early.append(message)
            else:
                self._on_message(message)

    def _lose(self, reason: str) -> None:
        assert self._ended is not None
        with self._lock:
            if self._lost is not None or self._closing:
                return
            self._lost = reason
            self._ended.set()
            if not self.job.done():
                self.job.set_exception(RunError(f"the launcher is gone: {reason}"))
            self._on_lost(reason)

    async def _put_and_wait(self, message: FromNode) -> None:
        """Put *message* and wait until it has left, so that no queue takes memory."""
        if self._connection is not None and self._connection.is_open:
            left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._connection.put(control_frame(message), left)
            with suppress(ConnectionError):  # `_lose` is called, too
                await left

    def _put(self, message: FromNode) -> None:
        if self._connection is not None and self._connection.is_open:
            self._connection.put(control_frame(message))
